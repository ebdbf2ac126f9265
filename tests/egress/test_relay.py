"""The relay: `http://` URLs for programs that only know proxies, by the same rules, and what it bounds."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from fumehood_sandbox.inside.relay import proxy_variables
from fumehood_server.egress import EgressLimits, Outcome, Reason

from tests.egress.relaying import ask, connect, relaying, tunnelled
from tests.egress.support import (
    BOUND_S,
    QUICK,
    answering,
    external,
    names,
    net,
    read_request,
    redirect,
    reply,
    serving,
)

pytestmark = pytest.mark.promise("S807")


async def test_a_plain_request_goes_through_the_brokers_rules() -> None:
    gzipped = b"\x1f\x8bnot really"
    async with answering(
        reply(gzipped, 200, "Content-Encoding: gzip", "X-Note: y", "Connection: x-hop", "X-Hop: 1")
    ) as server:
        network = net(resolver=names(good_test="1.1.1.1", evil_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80")) as port:
            fields = (
                b"Host: evil.test\r\nProxy-Authorization: Basic x\r\nConnection: x-drop\r\nX-Drop: 1\r\nX-Keep: 1\r\n"
            )
            allowed = await ask(port, b"GET http://good.test/x?y HTTP/1.1\r\n" + fields + b"\r\n")
            refused = await ask(port, b"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
    assert (allowed.status, allowed.body) == (200, gzipped)
    assert (refused.status, refused.refusal) == (403, Reason.HOST_NOT_GRANTED)
    sent = server.requests[0].lower()
    assert sent.startswith(b"get /x?y http/1.1\r\n")
    assert b"host: good.test\r\n" in sent
    assert b"x-keep: 1\r\n" in sent
    assert not [each for each in (b"evil", b"proxy", b"x-drop", b"accept-encoding") if each in sent]
    assert [event.outcome for event in network.events] == [Outcome.DONE, Outcome.REFUSED]


async def test_a_redirect_is_handed_to_the_program_which_asks_anew() -> None:
    async with answering(redirect("http://169.254.169.254/")) as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80", "169.254.169.254:80")) as port:
            first = await ask(port, b"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
            second = await ask(port, b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert first.status == 302
    assert (second.status, second.refusal) == (403, Reason.ADDRESS_NOT_PUBLIC)


@pytest.mark.parametrize("framing", ["length", "chunked", "expects"])
async def test_a_body_is_carried_within_its_cap(framing: str) -> None:
    def post(length: int) -> bytes:
        body = b"x" * length
        field = {
            "length": b"content-length: %d\r\n\r\n%s",
            "expects": b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n%s",
            "chunked": b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
        }[framing]
        return b"POST http://good.test/ HTTP/1.1\r\nhost: good.test\r\n" + field % (length, body)

    async with answering(reply(b"took it")) as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80", limits=EgressLimits(max_request_bytes=1000))) as port:
            within = await ask(port, post(1000))
            over = await ask(port, post(1001))
    assert within.body.endswith(b"took it")
    assert (over.status, over.refusal) == (413, Reason.REQUEST_TOO_LARGE)
    assert server.requests[0].endswith(b"\r\n\r\n" + b"x" * 1000)
    assert len(network.events) == 2


@pytest.mark.parametrize(
    ("request_bytes", "status", "reason"),
    [
        (b"GET / HTTP/1.1\r\nhost: good.test\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (b"GET https://good.test/ HTTP/1.1\r\nhost: good.test\r\n\r\n", 403, Reason.SCHEME_NOT_ALLOWED),
        (b"GET ftp://good.test/ HTTP/1.1\r\nhost: good.test\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (b"GET http://u:p@good.test/ HTTP/1.1\r\nhost: good.test\r\n\r\n", 403, Reason.URL_INVALID),
        (b"TRACE http://good.test/ HTTP/1.1\r\nhost: good.test\r\n\r\n", 403, Reason.METHOD_NOT_ALLOWED),
        (b"OPTIONS * HTTP/1.1\r\nhost: good.test\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (b"GET http://good.test/\x00 HTTP/1.1\r\nhost: good.test\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (b"GET http://good.test/ HTTP/1.1\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (b"GET http://good.test/ HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (
            b"POST http://good.test/ HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
            400,
            Reason.PROXY_REQUEST_INVALID,
        ),
        (b"GET http://good.test/ HTTP/1.1\r\nx: " + b"y" * 200_000, 400, Reason.PROXY_REQUEST_INVALID),
        (b"CONNECT good.test:443 HTTP/1.1\r\nbad name: x\r\n\r\n", 400, Reason.PROXY_REQUEST_INVALID),
        (
            b"CONNECT good.test:443 HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody",
            400,
            Reason.PROXY_REQUEST_INVALID,
        ),
        (
            b"CONNECT good.test:443 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            Reason.PROXY_REQUEST_INVALID,
        ),
    ],
)
async def test_a_request_that_is_none_for_a_proxy_is_refused(request_bytes: bytes, status: int, reason: Reason) -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80", "good.test:443")) as port:
            refused = await ask(port, request_bytes)
            assert (refused.status, refused.refusal) == (status, reason)
            assert not network.recorder.dials
            assert (await ask(port, b"GET http://good.test/ HTTP/1.1\r\nhost: x\r\n\r\n")).status == 200
    assert [event.reason for event in network.events] == [reason, None]


async def test_a_dial_that_fails_is_a_bad_gateway() -> None:
    network = net(resolver=names(good_test="1.1.1.1"))
    async with relaying(network, external("good.test:80", "good.test:443")) as port:
        plain = await ask(port, b"GET http://good.test/ HTTP/1.1\r\nhost: x\r\n\r\n")
        secure = await ask(port, connect("good.test:443"))
    assert (plain.status, plain.refusal) == (502, Reason.CONNECT_FAILED)
    assert (secure.status, secure.refusal) == (502, Reason.CONNECT_FAILED)


async def test_a_program_that_never_ends_its_head_is_cut_off() -> None:
    network = net()
    async with relaying(network, external("good.test:80"), head_timeout_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET http://good.test/ HTTP/1.1\r\nhost")
        answer = await asyncio.wait_for(reader.read(), BOUND_S)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert network.events[0].reason is Reason.PROXY_REQUEST_INVALID


async def test_connections_over_the_cap_are_told_to_come_again() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:443"), max_connections=1) as port:
            async with tunnelled(port, "good.test:443"):
                busy = await ask(port, connect("good.test:443"))
                assert (busy.status, busy.refusal) == (503, Reason.RELAY_BUSY)
            heard = busy
            async with asyncio.timeout(BOUND_S):
                while heard.status in {0, 503}:  # the first connection is still being closed
                    with suppress(ConnectionResetError):  # as the second one is
                        heard = await ask(port, connect("evil.test:1"))
            assert heard.refusal == Reason.HOST_NOT_GRANTED


async def test_a_response_that_breaks_off_breaks_off_for_the_program_too() -> None:
    async with answering(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nhalf") as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80")) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET http://good.test/ HTTP/1.1\r\nhost: x\r\n\r\n")
            try:
                raw = await asyncio.wait_for(reader.read(), BOUND_S)
            except ConnectionResetError:
                raw = b""
            writer.close()
    assert not raw.endswith(b"half" + b"x" * 6)
    assert network.events[0].reason is Reason.BODY_TRUNCATED


async def test_leaving_ends_what_is_under_way() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def waits(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await reader.read()
        gone.set()

    async with serving(waits) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:80", limits=QUICK)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET http://good.test/ HTTP/1.1\r\nhost: x\r\n\r\n")
            await asyncio.wait_for(arrived.wait(), BOUND_S)
        await asyncio.wait_for(gone.wait(), BOUND_S)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
    assert network.events[0].outcome is Outcome.CANCELLED


_FETCH = """
fetch("http://good.test/").then(async each => console.log(await each.text()), each => console.log(each.cause))
"""


async def test_nodes_own_fetch_finds_the_relay() -> None:
    node = _node_with_proxies()
    if node is None:
        pytest.skip("no node from 22.21, or 24, on: `make test-mcp-conformance` installs one")
    async with answering(reply(b"took it")) as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80")) as port:
            said = [await _said(node, each) for each in ({}, proxy_variables(port))]
    assert "took it" not in said[0]
    assert said[1] == "took it"


async def _said(node: str, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(node, "-e", _FETCH, stdout=asyncio.subprocess.PIPE, env=environment)
    out, _ = await process.communicate()
    return out.decode().strip()


def _node_with_proxies() -> str | None:
    own = Path(__file__).parents[1] / "mcp_conformance" / "node_modules" / ".bin" / "node"
    for node in (shutil.which("node"), own):
        if node is not None and Path(node).exists():
            version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
            major, minor = (int(part) for part in version.removeprefix("v").split(".")[:2])
            if major >= 24 or (major, minor) >= (22, 21):
                return str(node)
    return None
