"""CONNECT through the relay: which tunnels are made, and what they carry to which end."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

import pytest
import trustme
from fumehood_sandbox import Level
from fumehood_server.egress import EgressLimits, Outcome, Reason, access_for
from fumehood_server.egress.tls import TlsTrust

from tests.egress.conftest import certified
from tests.egress.relaying import ask, connect, relaying, tunnelled
from tests.egress.support import (
    BOUND_S,
    Names,
    answering,
    external,
    names,
    net,
    reply,
    serving,
)

pytestmark = pytest.mark.promise("S807")


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
            refused = await ask(port, connect(target))
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
            assert (await ask(port, connect("re.test:443"))).refusal == Reason.ADDRESS_NOT_PUBLIC
    assert network.recorder.dials == [("1.1.1.1", 443, None)]
    assert network.names.asked == ["re.test"] * 2


async def test_connect_is_for_level_external_alone() -> None:
    network = net(resolver=names(good_test="1.1.1.1"))
    async with relaying(network, access_for(Level.WRITE, hosts=["good.test:443"])) as port:
        refused = await ask(port, connect("good.test:443"))
    assert (refused.status, refused.refusal) == (403, Reason.METHOD_NOT_ALLOWED)
    assert not network.names.asked


async def test_tls_through_a_tunnel_is_the_programs_own(trusted: trustme.CA) -> None:
    async with answering(reply(b"private"), tls=certified(trusted, "good.test")) as server:
        network = net(resolver=names(good_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("good.test:443")) as port:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, connect("good.test:443"))
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
            await asyncio.wait_for(gone.wait(), BOUND_S)
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
                await ask(port, connect("good.test:443"))
            await network.events.reach(1)
    assert (network.events[0].outcome, network.events[0].reason) == (Outcome.FAILED, Reason.CONNECTION_LOST)


async def test_what_a_program_sends_with_its_connect_is_not_lost() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))

    async with serving(echo) as far:
        network = net(resolver=names(good_test="1.1.1.1"), to=far)
        async with relaying(network, external("good.test:443")) as port:
            answer = await ask(port, connect("good.test:443") + b"early")
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
