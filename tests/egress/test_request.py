"""One request through the broker: what goes out, what comes back, what is refused before anything is dialled."""

from __future__ import annotations

import socket

import pytest
from fumehood_sandbox import Level
from fumehood_server.egress import EgressLimits, EgressRequest, Outcome, Reason, access_for

from tests.egress.support import QUICK, Names, answering, external, fetch, names, net, reply

pytestmark = pytest.mark.promise("S802")


async def test_a_granted_host_is_reached() -> None:
    async with answering(
        reply(b"hello", 200, "X-Note: yes", "Connection: x-hop", "x-hop: 1", "keep-alive: 5")
    ) as server:
        network = net(resolver=names(a_test="127.0.0.1"), real=True)
        url = f"http://a.test:{server.port}/x?q=1"
        got = await fetch(network, url, external(f"a.test:{server.port}"))
    assert (got.status, got.body, got.url, got.redirects) == (200, b"hello", url, 0)
    assert got.headers == {"content-length": "5", "x-note": "yes"}
    head = server.requests[0].decode().split("\r\n")
    assert head[0] == "GET /x?q=1 HTTP/1.1"
    assert f"host: a.test:{server.port}" in [line.lower() for line in head]
    [event] = network.events
    assert (event.outcome, event.reason, event.origin.call_id) == (Outcome.DONE, None, "call-1")
    [hop] = event.hops
    assert (hop.host, hop.port, hop.path, hop.address, hop.status) == ("a.test", server.port, "/x", "127.0.0.1", 200)
    assert event.bytes_sent == len(server.requests[0])
    assert event.bytes_received > len(b"hello")
    assert "q=1" not in repr(event)


async def test_a_host_that_is_not_granted_is_neither_resolved_nor_dialled() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="127.0.0.1", b_test="127.0.0.1"), to=server.port)
        access = external("a.test:80")
        denied = await fetch(network, "http://b.test/", access)
        other_port = await fetch(network, "http://a.test:81/", access)
        allowed = await fetch(network, "http://a.test/", access)
    assert (denied.reason, other_port.reason, allowed.status) == (Reason.HOST_NOT_GRANTED, Reason.HOST_NOT_GRANTED, 200)
    assert network.names.asked == ["a.test"]
    assert network.recorder.dials == [("127.0.0.1", 80, None)]
    assert [event.outcome for event in network.events] == [Outcome.REFUSED, Outcome.REFUSED, Outcome.DONE]


async def test_no_grant_means_no_network() -> None:
    network = net(resolver=names(a_test="1.1.1.1"))
    got = await fetch(network, "http://a.test/", external())
    assert got.reason is Reason.HOST_NOT_GRANTED
    assert not network.names.asked


async def test_a_body_goes_out_at_level_external_alone() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="127.0.0.1"), to=server.port)
        post = EgressRequest("POST", "http://a.test/", (("Content-Type", "text/plain"),), b"x" * 300_000)
        read = access_for(Level.READ, hosts=["a.test:80"], allow_private=["a.test=127.0.0.1"])
        assert (await fetch(network, post, read)).reason is Reason.METHOD_NOT_ALLOWED
        assert not network.recorder.dials
        assert (await fetch(network, "http://a.test/", read)).status == 200
        assert (await fetch(network, post, external("a.test:80"))).status == 200
        smuggled = EgressRequest("GET", "http://a.test/", body=b"x")
        assert (await fetch(network, smuggled, external("a.test:80"))).reason is Reason.METHOD_NOT_ALLOWED
    assert server.requests[1].endswith(b"\r\n\r\n" + b"x" * 300_000)
    assert b"content-length: 300000\r\n" in server.requests[1].lower()


async def test_a_body_over_the_cap_is_not_sent() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="127.0.0.1"), to=server.port)
        access = external("a.test:80", limits=EgressLimits(max_request_bytes=10))
        over = await fetch(network, EgressRequest("PUT", "http://a.test/", body=b"x" * 11), access)
        within = await fetch(network, EgressRequest("PUT", "http://a.test/", body=b"x" * 10), access)
    assert (over.reason, within.status) == (Reason.REQUEST_TOO_LARGE, 200)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "b.test"),
        ("HOST", "b.test"),
        ("Connection", "keep-alive"),
        ("Content-Length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Upgrade", "websocket"),
        ("Expect", "100-continue"),
        ("Keep-Alive", "5"),
        ("Proxy-Authorization", "Basic x"),
        ("Proxy-Anything", "x"),
        ("HTTP2-Settings", "x"),
        ("X-Y\r\nHost", "b.test"),
        ("X Y", "z"),
        ("X:", "z"),
        ("", "z"),
        ("Host ", "b.test"),
        ("X-é", "z"),
        ("X-Y", "z\r\nHost: b.test"),
        ("X-Y", "z\nHost: b.test"),
        ("X-Y", "z\rHost: b.test"),
        ("X-Y", "z\x00"),
        ("X-Y", "€"),
    ],
)
async def test_a_header_field_that_changes_the_message_is_refused(name: str, value: str) -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="127.0.0.1"), to=server.port)
        access = external("a.test:80")
        refused = await fetch(network, EgressRequest("GET", "http://a.test/", ((name, value),)), access)
        assert refused.reason is Reason.HEADER_NOT_ALLOWED
        assert not network.recorder.dials
        allowed = await fetch(network, EgressRequest("GET", "http://a.test/", (("X-Y", " z\té "),)), access)
    assert allowed.status == 200
    assert b"\r\nx-y: z\t\xe9\r\n" in server.requests[0]


async def test_a_method_override_is_for_level_external_alone() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="127.0.0.1"), to=server.port)
        request = EgressRequest("GET", "http://a.test/", (("X-HTTP-Method-Override", "DELETE"),))
        read = access_for(Level.READ, hosts=["a.test:80"], allow_private=["a.test=127.0.0.1"])
        assert (await fetch(network, request, read)).reason is Reason.HEADER_NOT_ALLOWED
        assert (await fetch(network, request, external("a.test:80"))).status == 200


async def test_too_many_header_fields_are_refused() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="127.0.0.1"), to=server.port)
        access = external("a.test:80")
        many = EgressRequest("GET", "http://a.test/", tuple((f"x-{n}", "") for n in range(257)))
        long = EgressRequest("GET", "http://a.test/", (("x", "y" * 70_000),))
        fine = EgressRequest("GET", "http://a.test/", tuple((f"x-{n}", "") for n in range(200)))
        assert (await fetch(network, many, access)).reason is Reason.REQUEST_TOO_LARGE
        assert (await fetch(network, long, access)).reason is Reason.REQUEST_TOO_LARGE
        assert (await fetch(network, fine, access)).status == 200


async def test_a_failed_look_up_is_told_from_a_refusal() -> None:
    network = net(resolver=Names({}))
    got = await fetch(network, "http://gone.test/", external("gone.test:80"))
    assert got.reason is Reason.NAME_NOT_RESOLVED
    assert got.reason.retryable
    assert network.events[0].outcome is Outcome.FAILED


async def test_a_port_where_nobody_listens_is_a_failure_to_connect() -> None:
    network = net(real=True)
    with socket.socket() as bound:  # so that nobody else listens there meanwhile
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        got = await fetch(network, f"http://127.0.0.1:{port}/", external(f"127.0.0.1:{port}"))
    assert got.reason is Reason.CONNECT_FAILED


async def test_an_event_of_an_unreadable_url_shows_no_credentials() -> None:
    network = net()
    got = await fetch(network, "http://user:hunter2@a.test/p?key=hunter3#hunter4", external("a.test:80"))
    assert got.reason is Reason.URL_INVALID
    [event] = network.events
    assert event.shown == "http://…@a.test/p"
    assert "hunter" not in repr(event)


async def test_a_request_lowers_the_caps_for_itself() -> None:
    async with answering(reply(b"x" * 100)) as server:
        network = net(resolver=names(a_test="127.0.0.1"), to=server.port)
        access = external("a.test:80", limits=QUICK)
        small = await fetch(network, EgressRequest("GET", "http://a.test/", max_response_bytes=99), access)
        none = await fetch(network, EgressRequest("GET", "http://a.test/", timeout_s=-1.0), access)
        odd = await fetch(network, EgressRequest("GET", "http://a.test/", timeout_s=float("nan")), access)
        exact = await fetch(network, EgressRequest("GET", "http://a.test/", max_response_bytes=100), access)
    assert (small.reason, len(small.body)) == (Reason.RESPONSE_TOO_LARGE, 99)
    assert (none.reason, odd.reason) == (Reason.BOUND_INVALID, Reason.BOUND_INVALID)
    assert "more than 0 and at most 3600 s, not nan s" in odd.message
    assert (exact.status, exact.reason) == (200, None)
