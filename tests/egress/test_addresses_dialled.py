"""Names and the addresses behind them: each attack beside a name that is reached."""

from __future__ import annotations

import asyncio

import pytest
from fumehood_sandbox import Level
from fumehood_server.egress import EgressLimits, Outcome, Reason, access_for

from tests.egress.support import Names, answering, external, fetch, names, net, read_request, reply, serving

pytestmark = pytest.mark.promise("S803")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 - an address to refuse, not to bind
        "224.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "::1",
        "::",
        "fd00:ec2::254",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "2002:7f00:1::1",
        "2001:0:808:808::1",
    ],
)
async def test_a_name_at_an_address_that_is_not_public_is_refused(address: str) -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(bad_test=address, good_test="93.184.215.14"), to=server.port)
        access = external("bad.test:80", "good.test:80", private=())
        refused = await fetch(network, "http://bad.test/", access)
        assert refused.reason is Reason.ADDRESS_NOT_PUBLIC
        assert not network.recorder.dials
        assert (await fetch(network, "http://good.test/", access)).status == 200
    assert network.recorder.dials == [("93.184.215.14", 80, None)]
    assert network.events[0].hops[0].address == ""


@pytest.mark.parametrize("answers", [["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"], ["1.1.1.1", "::1"]])
async def test_one_private_address_among_public_ones_refuses_the_name(answers: list[str]) -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(mixed_test=answers, plain_test=["1.1.1.1", "1.0.0.1"]), to=server.port)
        access = external("mixed.test:80", "plain.test:80", private=())
        assert (await fetch(network, "http://mixed.test/", access)).reason is Reason.ADDRESS_NOT_PUBLIC
        assert not network.recorder.dials
        assert (await fetch(network, "http://plain.test/", access)).status == 200


async def test_a_name_that_answers_differently_the_second_time_is_asked_once() -> None:
    async with answering(reply()) as server:
        table = Names({"rebind.test": [["1.1.1.1"], ["127.0.0.1"]]})
        network = net(resolver=table, to=server.port)
        access = external("rebind.test:80", private=())
        assert (await fetch(network, "http://rebind.test/", access)).status == 200
        assert network.names.asked == ["rebind.test"]
        assert network.recorder.dials == [("1.1.1.1", 80, None)]
        # A second request is judged by the second answer.
        assert (await fetch(network, "http://rebind.test/", access)).reason is Reason.ADDRESS_NOT_PUBLIC
        assert len(network.recorder.dials) == 1


async def test_a_private_address_is_reached_only_where_it_is_listed_and_its_host_granted() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(in_test="10.0.0.5", next_test="10.0.0.6"), to=server.port)
        listed = external("in.test:80", "next.test:80", "10.0.0.5:80", private=["10.0.0.5"])
        assert (await fetch(network, "http://in.test/", listed)).status == 200
        assert (await fetch(network, "http://10.0.0.5/", listed)).status == 200
        assert (await fetch(network, "http://next.test/", listed)).reason is Reason.ADDRESS_NOT_PUBLIC
        assert (await fetch(network, "http://10.0.0.5:81/", listed)).reason is Reason.HOST_NOT_GRANTED
        unlisted = external("in.test:80", private=())
        assert (await fetch(network, "http://in.test/", unlisted)).reason is Reason.ADDRESS_NOT_PUBLIC
    assert network.recorder.dials == [("10.0.0.5", 80, None)] * 2


async def test_a_metadata_address_needs_its_own_line_even_when_granted() -> None:
    async with answering(reply()) as server:
        network = net(to=server.port)
        granted = external("169.254.169.254:80", private=["127.0.0.1"])
        assert (await fetch(network, "http://169.254.169.254/latest", granted)).reason is Reason.ADDRESS_NOT_PUBLIC
        listed = external("169.254.169.254:80", private=["169.254.169.254"])
        assert (await fetch(network, "http://169.254.169.254/latest", listed)).status == 200


async def test_an_address_in_a_url_matches_an_exact_entry_alone() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        by_name = external("a.test:80")
        assert (await fetch(network, "http://1.1.1.1/", by_name)).reason is Reason.HOST_NOT_GRANTED
        by_address = external("1.1.1.1:80")
        assert (await fetch(network, "http://1.1.1.1/", by_address)).status == 200
        assert (await fetch(network, "http://[::ffff:1.1.1.1]/", by_address)).reason is Reason.HOST_NOT_GRANTED
        assert (await fetch(network, "http://a.test/", by_address)).reason is Reason.HOST_NOT_GRANTED
    assert not network.names.asked


async def test_a_denied_address_is_denied_behind_any_name() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="1.1.1.1", b_test="1.0.0.1"), to=server.port)
        access = access_for(Level.EXTERNAL, hosts=["a.test:80", "b.test:80"], deny_hosts=["1.1.1.1"])
        assert (await fetch(network, "http://a.test/", access)).reason is Reason.ADDRESS_DENIED
        assert (await fetch(network, "http://b.test/", access)).status == 200
    assert network.recorder.dials == [("1.0.0.1", 80, None)]


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "A.LOCALHOST"])
async def test_names_of_this_machine_are_never_resolved(host: str) -> None:
    network = net(resolver=names(localhost="1.1.1.1"))
    got = await fetch(network, f"http://{host}/", external("*.example.test:80"))
    assert got.reason is Reason.HOST_RESERVED
    assert not network.names.asked
    assert not network.recorder.dials


async def test_a_second_address_is_tried_when_the_first_does_not_answer() -> None:
    network = net(resolver=names(a_test=["1.1.1.1", "1.0.0.1", "1.1.1.2", "1.1.1.3"]))
    got = await fetch(network, "http://a.test/", external("a.test:80"))
    assert got.reason is Reason.CONNECT_FAILED
    assert [address for address, *_ in network.recorder.dials] == ["1.1.1.1", "1.0.0.1", "1.1.1.2"]
    assert network.events[0].outcome is Outcome.FAILED
    assert network.events[0].hops[0].address == "1.1.1.2"


async def test_internationalised_names_are_resolved_in_their_ascii_form() -> None:
    async with answering(reply()) as server:
        network = net(resolver=Names({"xn--bcher-kva.test": [["1.1.1.1"]]}), to=server.port)
        access = external("bücher.test:80", limits=EgressLimits())
        assert (await fetch(network, "http://BÜCHER.test/", access)).status == 200
        assert (await fetch(network, "http://xn--bcher-kva.test/", access)).status == 200
        assert (await fetch(network, "http://bucher.test/", access)).reason is Reason.HOST_NOT_GRANTED
    assert b"host: xn--bcher-kva.test\r\n" in server.requests[0].lower()


async def test_an_address_of_version_six_is_dialled_as_it_stands() -> None:
    served: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await read_request(reader))
        writer.write(reply(b"six"))
        writer.close()

    async with serving(one, host="::1") as port:
        network = net(real=True)
        listed = external(f"[::1]:{port}", private=["::1"])
        assert (await fetch(network, f"http://[0:0::1]:{port}/", listed)).body == b"six"
        unlisted = external(f"[::1]:{port}")
        assert (await fetch(network, f"http://[::1]:{port}/", unlisted)).reason is Reason.ADDRESS_NOT_PUBLIC
    assert len(served) == 1
    assert f"host: [::1]:{port}\r\n".encode() in served[0].lower()
