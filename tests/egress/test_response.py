"""Responses that are too much, too slow, cut off or malformed: each is named, and a sound one beside it passes."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from fumehood_server.egress import MAX_PIECE_BYTES, Access, EgressLimits, EgressRequest, Outcome, Reason

from tests.egress.support import (
    BOUND_S,
    ORIGIN,
    QUICK,
    Net,
    answering,
    external,
    fetch,
    names,
    net,
    read_request,
    reply,
    serving,
)

pytestmark = pytest.mark.promise("S805")

_A = "http://a.test/"


def _net(port: int) -> tuple[Net, Access]:
    return net(resolver=names(a_test="1.1.1.1"), to=port), external("a.test:80", limits=QUICK)


def _chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


async def test_a_body_comes_in_pieces_of_bounded_size() -> None:
    body = bytes(range(256)) * 2000
    async with answering(reply(body), _chunked(body[:1], body[1:]), b"HTTP/1.0 200 X\r\n\r\n" + body) as server:
        network, access = _net(server.port)
        for _ in range(3):
            got = await fetch(network, _A, access)
            assert got.body == body
            assert max(got.pieces) <= MAX_PIECE_BYTES
            assert min(got.pieces) > 0


async def test_many_small_chunks_become_few_pieces_and_leave_the_loop_to_others() -> None:
    async with answering(_chunked(*[b"x"] * 20_000)) as server:
        network, access = _net(server.port)
        turns = 0
        done = asyncio.Event()

        async def other() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        got = await fetch(network, _A, access)
        done.set()
        await beside
    assert got.body == b"x" * 20_000
    assert len(got.pieces) < 100
    assert turns > 20_000 / 512


async def test_what_came_before_a_fault_is_handed_out() -> None:
    answer = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n"
    async with answering(answer) as server:
        network, access = _net(server.port)
        got = await fetch(network, _A, access)
    assert (got.body, got.reason) == (b"abc", Reason.RESPONSE_INVALID)


@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
async def test_a_body_over_the_cap_is_cut_exactly_there(framing: str) -> None:
    def answer(length: int) -> bytes:
        body = b"x" * length
        return {"length": reply(body), "chunked": _chunked(body), "until close": b"HTTP/1.1 200 X\r\n\r\n" + body}[
            framing
        ]

    async with answering(answer(100_001), answer(100_000)) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        access = external("a.test:80", limits=EgressLimits(max_response_bytes=100_000))
        over = await fetch(network, _A, access)
        within = await fetch(network, _A, access)
    assert (over.reason, len(over.body)) == (Reason.RESPONSE_TOO_LARGE, 100_000)
    assert (within.reason, len(within.body)) == (None, 100_000)
    assert [event.outcome for event in network.events] == [Outcome.FAILED, Outcome.DONE]


async def test_an_endless_body_is_not_read_ahead_of_the_reader() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 X\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with serving(endless) as port:
        network, access = _net(port)
        async with network.broker.request(EgressRequest("GET", _A), access, ORIGIN) as response:
            body = response.body()
            await anext(body)
            for _ in range(200):
                await asyncio.sleep(0)
            held = sent
            # Socket buffers of both sides and one of each stream's; far below what the loop could have moved.
            assert held < 16 * 1024 * 1024
            await anext(body)
    [event] = network.events
    assert event.outcome is Outcome.CANCELLED
    assert event.bytes_received <= 4 * 65536


@pytest.mark.parametrize(
    ("encoding", "wbits"), [("gzip", 31), ("x-gzip", 31), ("GZIP", 31), ("deflate", 15), ("deflate", -15)]
)
async def test_an_encoded_body_is_decoded_piece_by_piece(encoding: str, wbits: int) -> None:
    plain = bytes(range(256)) * 4000
    coder = zlib.compressobj(wbits=wbits)
    body = coder.compress(plain) + coder.flush()
    async with answering(reply(body, 200, f"Content-Encoding: {encoding}")) as server:
        network, access = _net(server.port)
        got = await fetch(network, _A, access)
        raw = await fetch(network, EgressRequest("GET", _A, decode=False), access)
        head = await fetch(network, EgressRequest("HEAD", _A), access)
    assert got.body == plain
    assert max(got.pieces) <= MAX_PIECE_BYTES
    assert not {"content-encoding", "content-length"} & set(got.headers)
    assert (raw.body, raw.headers["content-encoding"]) == (body, encoding)
    assert (head.body, head.headers["content-length"]) == (b"", str(len(body)))
    assert b"accept-encoding: gzip, deflate\r\n" in server.requests[0].lower()
    assert b"accept-encoding" not in server.requests[1].lower()


async def test_a_small_body_that_grows_without_end_is_cut_at_the_cap() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    async with answering(
        reply(bomb, 200, "content-encoding: gzip"), reply(gzip.compress(b"ok"), 200, "content-encoding: gzip")
    ) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        access = external("a.test:80", limits=EgressLimits(max_response_bytes=1_000_000))
        got = await fetch(network, _A, access)
        fine = await fetch(network, _A, access)
    assert (got.reason, len(got.body)) == (Reason.RESPONSE_TOO_LARGE, 1_000_000)
    assert max(got.pieces) <= MAX_PIECE_BYTES
    assert network.events[0].bytes_received < 100_000
    assert fine.body == b"ok"


async def test_bytes_from_the_network_have_a_cap_of_their_own() -> None:
    flood = gzip.compress(b"") * 900  # decodes to nothing at all
    two = gzip.compress(b"one") + gzip.compress(b"two")
    gz = "content-encoding: gzip"
    async with answering(
        reply(flood, 200, gz), reply(gzip.compress(b"") * 1001, 200, gz), reply(two, 200, gz)
    ) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        small = external("a.test:80", limits=EgressLimits(max_received_bytes=10_000))
        assert (await fetch(network, _A, small)).reason is Reason.RESPONSE_TOO_LARGE
        assert (await fetch(network, _A, external("a.test:80"))).reason is Reason.ENCODING_INVALID
        assert (await fetch(network, _A, external("a.test:80"))).body == b"onetwo"


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"not gzip", "gzip"),
        (gzip.compress(b"cut off", mtime=0)[:-4], "gzip"),
        (gzip.compress(b"followed", mtime=0) + b"by something", "gzip"),
        (zlib.compress(b"followed") + b"by something", "deflate"),
        (b"\xff\xff\xff", "deflate"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_an_error(body: bytes, encoding: str) -> None:
    async with answering(
        reply(body, 200, f"content-encoding: {encoding}"), reply(b"", 200, "content-encoding: gzip")
    ) as server:
        network, access = _net(server.port)
        assert (await fetch(network, _A, access)).reason is Reason.ENCODING_INVALID
        assert (await fetch(network, _A, access)).reason is None


@pytest.mark.parametrize("field", ["br", "gzip, gzip", "zstd", "identity"])
async def test_other_encodings_are_handed_out_as_they_come(field: str) -> None:
    async with answering(reply(b"whatever", 200, f"content-encoding: {field}")) as server:
        network, access = _net(server.port)
        got = await fetch(network, _A, access)
    assert (got.body, got.headers["content-encoding"]) == (b"whatever", field)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", Reason.CONNECTION_LOST),
        (b"HTTP/1.1 200 X\r\ncontent-le", Reason.CONNECTION_LOST),
        (b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nhalf", Reason.BODY_TRUNCATED),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc", Reason.BODY_TRUNCATED),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", Reason.BODY_TRUNCATED),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\ncontent-length: +3\r\n\r\nabc", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\ncontent-length: -3\r\n\r\nabc", Reason.RESPONSE_INVALID),
        (
            b"HTTP/1.1 200 X\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            Reason.RESPONSE_INVALID,
        ),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\nbad name: x\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\nname : x\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\nx: \x00\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 99 X\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 101 X\r\nupgrade: x\r\n\r\n", Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 103 X\r\n\r\n" * 11, Reason.RESPONSE_INVALID),
        (b"HTTP/1.1 200 X\r\nx: " + b"y" * 200_000, Reason.HEAD_TOO_LARGE),
        (b"HTTP/1.1 200 X\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", Reason.HEAD_TOO_LARGE),
        (b"HTTP/1.1 200 X\r\n" + b"x: y\r\n" * 300 + b"\r\n", Reason.HEAD_TOO_LARGE),
        (b"HTTP/1.1 200 X\r\n" + b"x: y\r\n" * 50_000, Reason.HEAD_TOO_LARGE),
    ],
)
async def test_a_faulty_response_is_named(answer: bytes, reason: Reason) -> None:
    async with answering(answer, b"HTTP/1.1 103 X\r\n\r\n" * 10 + reply(b"sound")) as server:
        network, access = _net(server.port)
        assert (await fetch(network, _A, access)).reason is reason
        assert (await fetch(network, _A, access)).body == b"sound"
    assert [event.reason for event in network.events] == [reason, None]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 X\r\n", b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\nslow"])
async def test_one_deadline_bounds_all_of_a_request(answer: bytes) -> None:
    async def stalled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await reader.read()

    async with serving(stalled) as port:
        network, access = _net(port)
        got = await fetch(network, EgressRequest("GET", _A, timeout_s=0.2), access)
    assert got.reason is Reason.TIMEOUT
    assert got.reason.retryable
    assert network.events[0].outcome is Outcome.FAILED


async def test_a_server_that_refuses_a_body_early_is_heard() -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(b"no", 413))
        await writer.drain()
        await reader.read(1)

    async with serving(refuses) as port:
        network, access = _net(port)
        got = await fetch(network, EgressRequest("POST", _A, body=b"x" * 4_000_000), access)
    assert (got.status, got.body) == (413, b"no")


async def test_a_cancelled_request_closes_its_connection_and_leaves_an_event() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def waits(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        try:
            await reader.read()
        finally:
            gone.set()

    async with serving(waits) as port:
        network, access = _net(port)
        task = asyncio.create_task(fetch(network, _A, access))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), BOUND_S)
    [event] = network.events
    assert (event.outcome, event.reason) == (Outcome.CANCELLED, None)
    assert event.hops[0].address == "1.1.1.1"
