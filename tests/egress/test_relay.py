"""The relay: CONNECT and `http://` URLs for programs that only know proxies, by the same rules."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
import trustme
from fumehood_sandbox import Level
from fumehood_server.egress import Access, EgressLimits, Outcome, Reason, access_for
from fumehood_server.egress.relay import Relay
from fumehood_server.egress.tls import TlsTrust

from tests.egress.conftest import certified
from tests.egress.support import (
    ASKER,
    QUICK,
    Names,
    Net,
    answering,
    external,
    names,
    net,
    read_request,
    redirect,
    reply,
    serving,
)


@asynccontextmanager
async def relaying(network: Net, access: Access, **options: float) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with Relay(network.broker, **options).serve(listener, access, lambda: ASKER):  # type: ignore[arg-type]
        yield port
    assert listener.fileno() == -1


@dataclass(slots=True)
class Answer:
    status: int
    refusal: str
    body: bytes


async def ask(port: int, request: bytes) -> Answer:
    """Send a request to a relay and read its answer to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        raw = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
    head, _, body = raw.removeprefix(b"HTTP/1.1 100 \r\n\r\n").partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return Answer(int(lines[0].split(" ")[1]) if raw else 0, fields.get("fumehood-refusal", ""), body)


@asynccontextmanager
async def tunnelled(port: int, target: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Connection: keep-alive\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 200 ")
        yield reader, writer
    finally:
        writer.close()


def _connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: good.test:443\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("target", "status", "reason"),
    [
        ("good.test:22", 403, Reason.HOST_NOT_GRANTED),
        ("good.test:80", 403, Reason.HOST_NOT_GRANTED),
        ("evil.test:443", 403, Reason.HOST_NOT_GRANTED),
        ("inner.test:443", 403, Reason.ADDRESS_NOT_PUBLIC),
        ("127.0.0.1:443", 403, Reason.HOST_NOT_GRANTED),
        ("127.1:443", 403, Reason.HOST_INVALID),
        ("2130706433:443", 403, Reason.HOST_INVALID),
        ("good.test.:443", 403, Reason.HOST_INVALID),
        ("[::1%25lo]:443", 403, Reason.HOST_INVALID),
        ("localhost:443", 403, Reason.HOST_RESERVED),
        ("user@good.test:443", 403, Reason.URL_INVALID),
        ("good.test:0443", 403, Reason.URL_INVALID),
        ("good.test", 400, Reason.PROXY_REQUEST_INVALID),
        ("https://good.test:443", 403, Reason.HOST_INVALID),
        ("good.test:443/", 403, Reason.HOST_INVALID),
        ("gone.test:443", 502, Reason.NAME_NOT_RESOLVED),
    ],
)
async def test_connect_reaches_granted_hosts_and_ports_alone(target: str, status: int, reason: Reason) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        await writer.drain()

    async with serving(echo) as far:
        network = net(resolver=names(good_test="1.1.1.1", evil_test="1.1.1.1", inner_test="10.0.0.1"), to=far)
        access = external("good.test:443", "inner.test:443", "gone.test:443", private=())
        async with relaying(network, access) as port:
            refused = await ask(port, _connect(target))
            assert (refused.status, refused.refusal) == (status, reason)
            assert refused.body.startswith(reason.encode())
            assert not network.recorder.dials
            async with tunnelled(port, "good.test:443") as (reader, writer):
                writer.write(b"ping")
                assert await reader.readexactly(4) == b"ping"
                assert await reader.read() == b""
    assert network.recorder.dials == [("1.1.1.1", 443, None)]
    assert network.events[0].reason is reason
    assert network.events[0].method == "CONNECT"
    assert network.events[1].hops[0].address == "1.1.1.1"
    assert (network.events[1].bytes_sent, network.events[1].bytes_received) == (4, 4)


async def test_connect_dials_the_address_that_was_judged() -> None:
    async def quiet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hi")

    async with serving(quiet) as far:
        network = net(resolver=Names({"re.test": [["1.1.1.1"], ["127.0.0.1"]]}), to=far)
        async with relaying(network, external("re.test:443", private=())) as port:
            async with tunnelled(port, "re.test:443") as (reader, _writer):
                assert await reader.read(2) == b"hi"
            assert (await ask(port, _connect("re.test:443"))).refusal == Reason.ADDRESS_NOT_PUBLIC
    assert network.recorder.dials == [("1.1.1.1", 443, None)]
    assert network.names.asked == ["re.test"] * 2


async def test_connect_is_for_level_external_alone() -> None:
    network = net(resolver=names(good_test="1.1.1.1"))
    async with relaying(network, access_for(Level.WRITE, hosts=["good.test:443"])) as port:
        refused = await ask(port, _connect("good.test:443"))
    assert (refused.status, refused.refusal) == (403, Reason.METHOD_NOT_ALLOWED)
    assert not network.names.asked


async def test_tls_through_a_tunnel_is_the_programs_own(trusted: trustme.CA) -> None:
    async with answering(reply(b"private"), tls=certified(trusted, "good.test")) as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:443")) as port:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, _connect("good.test:443"))
            assert (await loop.sock_recv(sock, 4096)).startswith(b"HTTP/1.1 200 ")
            context = await TlsTrust().context()
            reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname="good.test")
            writer.write(b"GET / HTTP/1.1\r\nhost: good.test\r\n\r\n")
            assert (await reader.readuntil(b"private")).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("program_ends_first", [True, False])
async def test_a_half_closed_tunnel_carries_the_other_half_to_its_end(program_ends_first: bool) -> None:
    payload = b"x" * 300_000

    async def far_side(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if program_ends_first:
            heard = await reader.read()
            writer.write(b"%d" % len(heard))
        else:
            writer.write(payload)
            writer.write_eof()
            heard = await reader.read()
            counted.append(len(heard))

    counted: list[int] = []
    async with serving(far_side) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:443")) as port:
            async with tunnelled(port, "good.test:443") as (reader, writer):
                if program_ends_first:
                    writer.write(payload)
                    writer.write_eof()
                    assert await reader.read() == b"300000"
                else:
                    assert await reader.read() == payload
                    writer.write(payload)
                    writer.write_eof()
            await network.events.reach(1)
    assert network.events[0].outcome is Outcome.DONE
    assert program_ends_first or counted == [300_000]


async def test_a_program_that_breaks_off_its_tunnel_is_no_failure_of_the_host() -> None:
    gone = asyncio.Event()

    async def far_side(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hi")
        try:
            await reader.read()
        finally:
            gone.set()

    async with serving(far_side) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:443")) as port:
            async with tunnelled(port, "good.test:443") as (reader, writer):
                assert await reader.read(2) == b"hi"
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset on close
                writer.transport.abort()
            await network.events.reach(1)
            await asyncio.wait_for(gone.wait(), 10)
    assert (network.events[0].outcome, network.events[0].reason) == (Outcome.CANCELLED, None)


async def test_a_host_that_breaks_off_a_tunnel_is_named() -> None:
    async def far_side(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serving(far_side) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:443")) as port:
            with suppress(ConnectionResetError):
                await ask(port, _connect("good.test:443"))
            await network.events.reach(1)
    assert (network.events[0].outcome, network.events[0].reason) == (Outcome.FAILED, Reason.CONNECTION_LOST)


async def test_what_a_program_sends_with_its_connect_is_not_lost() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))

    async with serving(echo) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:443")) as port:
            answer = await ask(port, _connect("good.test:443") + b"early")
    assert (answer.status, answer.body) == (200, b"early")


async def test_a_tunnel_ends_at_its_caps() -> None:
    async def floods(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    bytes_cap = EgressLimits(max_tunnel_bytes=1_000_000)
    time_cap = EgressLimits(tunnel_timeout_s=0.2)
    for handler, limits, reason in (
        (floods, bytes_cap, Reason.TUNNEL_TOO_LARGE),
        (silent, time_cap, Reason.TIMEOUT),
    ):
        async with serving(handler) as far:
            network = net(resolver=names(good_test="1.1.1.1"), to=far)
            async with relaying(network, external("good.test:443", limits=limits)) as port:
                async with tunnelled(port, "good.test:443") as (reader, _writer):
                    with_end = 0
                    try:
                        while data := await reader.read(65536):
                            with_end += len(data)
                    except ConnectionResetError:
                        pass
                assert with_end <= 1_000_000
                await network.events.reach(1)
        assert (network.events[0].outcome, network.events[0].reason) == (Outcome.FAILED, reason)


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
        secure = await ask(port, _connect("good.test:443"))
    assert (plain.status, plain.refusal) == (502, Reason.CONNECT_FAILED)
    assert (secure.status, secure.refusal) == (502, Reason.CONNECT_FAILED)


async def test_a_program_that_never_ends_its_head_is_cut_off() -> None:
    network = net()
    async with relaying(network, external("good.test:80"), head_timeout_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET http://good.test/ HTTP/1.1\r\nhost")
        answer = await asyncio.wait_for(reader.read(), 10)
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
                busy = await ask(port, _connect("good.test:443"))
                assert (busy.status, busy.refusal) == (503, Reason.RELAY_BUSY)
            async with asyncio.timeout(10):
                while (heard := await ask(port, _connect("evil.test:1"))).status in {0, 503}:
                    pass  # the first connection is still being closed
            assert heard.refusal == Reason.HOST_NOT_GRANTED


async def test_a_response_that_breaks_off_breaks_off_for_the_program_too() -> None:
    async with answering(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nhalf") as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:80")) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET http://good.test/ HTTP/1.1\r\nhost: x\r\n\r\n")
            try:
                raw = await asyncio.wait_for(reader.read(), 10)
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
            await asyncio.wait_for(arrived.wait(), 10)
        await asyncio.wait_for(gone.wait(), 5)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
    assert network.events[0].outcome is Outcome.CANCELLED
