"""Redirects: each hop is checked like a request of its own, and carries only the fields that may be sent there."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trustme
from fumehood_sandbox import Level
from fumehood_server.egress import EgressRequest, Outcome, Reason, access_for

from tests.egress.conftest import certified
from tests.egress.support import Names, answering, external, fetch, names, net, redirect, reply

pytestmark = pytest.mark.promise("S804")


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data/", Reason.HOST_NOT_GRANTED),
        ("http://[fd00:ec2::254]/latest", Reason.HOST_NOT_GRANTED),
        ("http://meta.test/latest", Reason.ADDRESS_NOT_PUBLIC),
        ("//meta.test/latest", Reason.ADDRESS_NOT_PUBLIC),
        ("http://other.test/", Reason.HOST_NOT_GRANTED),
        ("http://a.test:22/", Reason.HOST_NOT_GRANTED),
        ("http://127.1/", Reason.HOST_INVALID),
        ("http://2852039166/", Reason.HOST_INVALID),
        ("http://localhost/", Reason.HOST_RESERVED),
        ("http://a.test@169.254.169.254/", Reason.REDIRECT_INVALID),
        ("http://a.test\\@169.254.169.254/", Reason.REDIRECT_INVALID),
        ("/\x7f", Reason.REDIRECT_INVALID),
        ("file:///etc/passwd", Reason.SCHEME_NOT_ALLOWED),
        ("gopher://a.test/", Reason.SCHEME_NOT_ALLOWED),
    ],
)
async def test_a_redirect_to_where_a_request_may_not_go_is_refused(location: str, reason: Reason) -> None:
    async with answering(redirect(location), redirect("/fine"), reply(b"fine")) as server:
        table = names(a_test="1.1.1.1", meta_test="169.254.169.254", other_test="1.1.1.1")
        network = net(resolver=table, to=server.port)
        access = external("a.test:80", "meta.test:80", private=())
        refused = await fetch(network, "http://a.test/", access)
        assert refused.reason is reason
        assert len(network.recorder.dials) == 1
        allowed = await fetch(network, "http://a.test/", access)
        assert (allowed.body, allowed.redirects, allowed.url) == (b"fine", 1, "http://a.test/fine")
    assert network.events[0].outcome is Outcome.REFUSED
    assert network.events[0].hops[0].status == 302
    assert [hop.path for hop in network.events[1].hops] == ["/", "/fine"]


async def test_a_redirect_back_to_a_name_is_resolved_and_judged_anew() -> None:
    async with answering(redirect("http://rebind.test/two"), reply()) as server:
        network = net(resolver=Names({"rebind.test": [["1.1.1.1"], ["127.0.0.1"]]}), to=server.port)
        got = await fetch(network, "http://rebind.test/", external("rebind.test:80", private=()))
    assert got.reason is Reason.ADDRESS_NOT_PUBLIC
    assert network.names.asked == ["rebind.test"] * 2
    assert network.recorder.dials == [("1.1.1.1", 80, None)]


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", False),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
        (301, "PUT", "PUT", True),
        (302, "GET", "GET", False),
    ],
)
async def test_method_and_body_change_as_the_status_says(status: int, method: str, then: str, keeps_body: bool) -> None:
    async with answering(redirect("/next", status), reply(b"")) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        body = b"" if method in {"GET", "HEAD"} else b"payload"
        request = EgressRequest(method, "http://a.test/", (("Content-Type", "text/x"), ("X-Key", "k")), body)
        got = await fetch(network, request, external("a.test:80"))
    assert got.status == 200
    second = server.requests[1]
    assert second.startswith(f"{then} /next HTTP/1.1\r\n".encode())
    assert (b"payload" in second) is keeps_body
    assert (b"content-type" in second) is (keeps_body or method in {"GET", "HEAD"})
    assert b"x-key: k\r\n" in second


_CREDENTIALS = (
    ("Authorization", "Bearer s3cret"),
    ("Cookie", "s3cret"),
    ("X-Api-Key", "s3cret"),
    ("Referer", "http://a.test/s3cret"),
    ("Accept", "text/x"),
)


@pytest.mark.parametrize(("location", "keeps"), [("http://b.test/", False), ("http://a.test:81/", False), ("/x", True)])
async def test_credentials_stay_within_their_origin(location: str, keeps: bool) -> None:
    async with answering(redirect(location), redirect("http://a.test/back"), reply()) as server:
        network = net(resolver=names(a_test="1.1.1.1", b_test="1.1.1.1"), to=server.port)
        access = external("a.test:80", "a.test:81", "b.test:80")
        got = await fetch(network, EgressRequest("GET", "http://a.test/", _CREDENTIALS), access)
    assert got.status == 200
    first, second, third = server.requests
    assert first.count(b"s3cret") == 4
    assert (second.count(b"s3cret"), third.count(b"s3cret")) == ((4, 4) if keeps else (0, 0))
    assert b"accept: text/x\r\n" in second


async def test_a_redirect_from_https_to_http_is_refused_and_the_other_way_followed(trusted: trustme.CA) -> None:
    tls = certified(trusted, "127.0.0.1")
    async with AsyncExitStack() as stack:
        safe = await stack.enter_async_context(answering(redirect("http://127.0.0.1:1/"), reply(b"safe"), tls=tls))
        plain = await stack.enter_async_context(answering(redirect(f"https://127.0.0.1:{safe.port}/")))
        network = net(real=True)
        access = external(f"127.0.0.1:{safe.port}", f"127.0.0.1:{plain.port}", "127.0.0.1:1")
        down = await fetch(network, f"https://127.0.0.1:{safe.port}/", access)
        up = await fetch(network, f"http://127.0.0.1:{plain.port}/", access)
    assert down.reason is Reason.REDIRECT_DOWNGRADE
    assert (up.body, up.redirects) == (b"safe", 1)


async def test_redirects_are_counted() -> None:
    async with answering(redirect("/again")) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        access = external("a.test:80")
        endless = await fetch(network, "http://a.test/", access)
        assert endless.reason is Reason.TOO_MANY_REDIRECTS
        assert len(server.requests) == access.limits.max_redirects + 1
        two = await fetch(network, EgressRequest("GET", "http://a.test/", max_redirects=2), access)
        assert two.reason is Reason.TOO_MANY_REDIRECTS
        assert len(server.requests) == access.limits.max_redirects + 1 + 3
        for wish in (0, -5):
            handed_out = await fetch(network, EgressRequest("GET", "http://a.test/", max_redirects=wish), access)
            assert (handed_out.status, handed_out.headers["location"], handed_out.reason) == (302, "/again", None)


async def test_a_redirect_with_two_locations_is_refused_and_one_with_none_handed_out() -> None:
    two = b"HTTP/1.1 302 X\r\nlocation: /a\r\nlocation: http://b.test/\r\ncontent-length: 0\r\n\r\n"
    async with answering(two, reply(b"", 302), redirect("/x", 300)) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        access = external("a.test:80")
        assert (await fetch(network, "http://a.test/", access)).reason is Reason.REDIRECT_INVALID
        assert (await fetch(network, "http://a.test/", access)).status == 302
        assert (await fetch(network, "http://a.test/", access)).status == 300


async def test_a_method_of_the_level_is_all_that_a_redirect_leads_to() -> None:
    async with answering(redirect("/x", 307), reply()) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        got = await fetch(network, "http://a.test/", access_for(Level.READ, hosts=["a.test:80"]))
    assert got.status == 200
    assert all(request.startswith(b"GET ") for request in server.requests)
