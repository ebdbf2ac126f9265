"""TLS is verified against the name that was asked for, by the system's store."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
import uvloop
from fumehood_server.egress import EgressLimits, Reason
from fumehood_server.egress.broker import Broker
from fumehood_server.egress.dial import TcpDialler

from tests.egress.conftest import certified
from tests.egress.support import BOUND_S, Net, Recorder, answering, external, fetch, names, net, reply, serving

pytestmark = pytest.mark.promise("S806")


async def test_a_certificate_for_the_name_is_accepted_and_one_for_another_is_not(trusted: trustme.CA) -> None:
    async with answering(reply(b"secret"), tls=certified(trusted, "a.test", "127.0.0.1")) as server:
        network = net(resolver=names(a_test="127.0.0.1", b_test="127.0.0.1"), real=True)
        access = external(f"a.test:{server.port}", f"b.test:{server.port}", f"127.0.0.1:{server.port}")
        right = await fetch(network, f"https://a.test:{server.port}/", access)
        wrong = await fetch(network, f"https://b.test:{server.port}/", access)
        by_address = await fetch(network, f"https://127.0.0.1:{server.port}/", access)
    assert (right.status, right.body) == (200, b"secret")
    assert wrong.reason is Reason.TLS_FAILED
    assert "b.test" in wrong.message
    assert by_address.status == 200
    assert len(server.requests) == 2
    assert network.events[1].hops[0].address == "127.0.0.1"


async def test_a_certificate_of_an_unknown_authority_is_refused(trusted: trustme.CA) -> None:
    async with answering(reply(), tls=certified(trustme.CA(), "a.test")) as server:
        network = net(resolver=names(a_test="127.0.0.1"), real=True)
        got = await fetch(network, f"https://a.test:{server.port}/", external(f"a.test:{server.port}"))
    assert got.reason is Reason.TLS_FAILED
    assert not got.reason.retryable
    assert not server.requests
    assert trusted.cert_pem.bytes()


async def test_old_versions_of_tls_are_refused(trusted: trustme.CA) -> None:
    context = certified(trusted, "a.test")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with answering(reply(), tls=context) as server:
        network = net(resolver=names(a_test="127.0.0.1"), real=True)
        got = await fetch(network, f"https://a.test:{server.port}/", external(f"a.test:{server.port}"))
    assert got.reason is Reason.TLS_FAILED


async def test_https_to_a_server_without_tls_is_a_tls_failure(trusted: trustme.CA) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.write(reply(b"", 400))
        await writer.drain()

    async with serving(plain) as port:
        network = net(resolver=names(a_test="127.0.0.1"), real=True)
        access = external(f"a.test:{port}")
        assert (await fetch(network, f"https://a.test:{port}/", access)).reason is Reason.TLS_FAILED
        assert (await fetch(network, f"http://a.test:{port}/", access)).status == 400
    assert trusted


async def test_a_handshake_that_never_ends_is_given_up_and_closed(trusted: trustme.CA) -> None:
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(4096):
                pass
        finally:
            gone.set()

    async with serving(silent) as port:
        network = net(resolver=names(a_test="127.0.0.1"), real=True)
        limits = EgressLimits(connect_timeout_s=0.2)
        got = await fetch(network, f"https://a.test:{port}/", external(f"a.test:{port}", limits=limits))
        await asyncio.wait_for(gone.wait(), BOUND_S)
    assert got.reason is Reason.CONNECT_FAILED
    assert trusted


async def test_the_store_is_read_once_and_only_for_https(trusted: trustme.CA) -> None:
    dialler = TcpDialler()
    network = Net(
        Broker(resolver=names(a_test="127.0.0.1"), dialler=dialler, sink=lambda _: None), names(), Recorder(), []
    )
    async with answering(reply()) as plain:
        await fetch(network, f"http://a.test:{plain.port}/", external(f"a.test:{plain.port}"))
    trust = dialler._trust
    assert trust._context is None
    async with answering(reply(), tls=certified(trusted, "a.test")) as server:
        for _ in range(2):
            got = await fetch(network, f"https://a.test:{server.port}/", external(f"a.test:{server.port}"))
            assert got.status == 200
    assert await trust.context() is await trust.context()


def test_a_long_body_is_read_to_its_end_on_the_sidecars_own_loop(trusted: trustme.CA) -> None:
    """Its TLS would lose what was not read yet when the server closes; ours must not depend on it."""

    async def run() -> int:
        async with answering(reply(b"x" * 2_000_000), tls=certified(trusted, "a.test")) as server:
            network = net(resolver=names(a_test="127.0.0.1"), real=True)
            got = await fetch(network, f"https://a.test:{server.port}/", external(f"a.test:{server.port}"))
        return len(got.body)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == 2_000_000
