"""Methods that take half a request from many streams: health, which is open to everybody, and reflection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import grpc
import psutil
import pytest
from fumehood_server.errors import RefusedError
from fumehood_server.rpc import health, reflection
from fumehood_server.rpc.reading import RequestReader, Service
from fumehood_server.rpc.unread import OPEN_BOUNDS, STREAM_BYTES, UnreadAnswers
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.rpc.http2 import END_STREAM, HEADERS, Http2, message
from tests.rpc.support import BOUND_S, refused
from tests.sidecar import Sidecar, running_sidecar

_CHECK, _WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
_REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
_HALF = message(b"x" * 1_900_000)[:-1]
_MORE = 100
_MIB = 1024 * 1024
_OWN_BYTES = 64 * _MIB
"""What else the sidecar may have more than before."""


@pytest.fixture(scope="module")
def closed_sidecar() -> Iterator[Sidecar]:
    """One whose callers over TCP need a token."""
    server = 'listen = ["unix:s", "127.0.0.1:0", "127.0.0.1:0"]\nallow_anonymous = false\n'
    with running_sidecar(server=server, more='[[caller]]\nname = "svc"\ntools = ["*"]\n') as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    with running_sidecar(server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
        yield sidecar


def _memory(sidecar: Sidecar) -> int:
    return int(psutil.Process(sidecar.process.pid).memory_info().rss)


async def _is_serving(target: str) -> bool:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=BOUND_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize("method", [_CHECK, _WATCH])
async def test_half_sent_requests_without_a_token_make_room_for_others(closed_sidecar: Sidecar, method: str) -> None:
    before, target = _memory(closed_sidecar), closed_sidecar.targets[1]
    with Http2(target) as connection:
        streams = [connection.request(method, end=False) for _ in range(health.MAX_ARRIVING + _MORE)]
        ended = await asyncio.to_thread(connection.send_within_windows, _HALF, streams)
        assert len(ended) >= _MORE
        assert _memory(closed_sidecar) - before < health.MAX_ARRIVING * len(_HALF) + _OWN_BYTES
        assert await _is_serving(target)
        assert await _is_serving(closed_sidecar.targets[0])


async def test_answers_of_health_that_nobody_reads_are_bounded_and_everybody_else_has_them(
    closed_sidecar: Sidecar,
) -> None:
    most = (OPEN_BOUNDS.connection_bytes + OPEN_BOUNDS.margin_bytes) // STREAM_BYTES
    request = message(health_pb2.HealthCheckRequest().SerializeToString())
    with Http2(closed_sidecar.targets[1], window=0) as connection:
        for _ in range(most + _MORE):
            connection.request(_CHECK, request)
        refusals = 0
        for _ in range(most + _MORE):
            while (received := connection.receive())[0] != HEADERS:
                pass
            refusals += bool(received[1] & END_STREAM)
        assert refusals >= _MORE
        assert await _is_serving(closed_sidecar.targets[1])


async def test_streams_of_reflection_are_bounded_for_each_connection(sidecar: Sidecar) -> None:
    before = _memory(sidecar)
    with contextlib.ExitStack() as stack:
        all_ended = 0
        for _ in range(6):
            connection = stack.enter_context(Http2(sidecar.targets[1]))
            streams = [connection.request(_REFLECT, end=False) for _ in range(20)]
            ended = await asyncio.to_thread(connection.send_within_windows, _HALF, streams)
            assert len(ended) >= 20 - reflection.MAX_STREAMS_OF_CONNECTION
            all_ended += len(ended)
        assert 6 * 20 - all_ended <= reflection.MAX_STREAMS * 3 // 4
        assert _memory(sidecar) - before < reflection.MAX_STREAMS * len(_HALF) + _OWN_BYTES
        async with sidecar.channel() as channel:
            stream = channel.stream_stream(_REFLECT)(timeout=BOUND_S)
            await stream.write(b"\x3a\x00")
            assert b"fumehood.v1.ToolService" in bytes(await stream.read())  # type: ignore[arg-type] # not its end
            await stream.done_writing()


@contextlib.asynccontextmanager
async def _served(reader: RequestReader, unix: str = "") -> AsyncIterator[str]:
    """A server that reads its requests by `reader`, at a unix socket as well if there is a path. Gives its target."""

    async def echo(request: health_pb2.HealthCheckRequest, _context: object) -> bytes:
        return bytes(request.SerializeToString())

    server = grpc.aio.server()
    methods = {"Echo": reader.unary(echo, health_pb2.HealthCheckRequest, max_bytes=100)}
    server.add_generic_rpc_handlers((Service("test.Echo", methods).handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    if unix:
        server.add_insecure_port(f"unix:{unix}")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_request_that_is_not_whole_in_time_is_given_up() -> None:
    # Longer than a busy machine keeps this process from reading what it has sent.
    reader = RequestReader(UnreadAnswers(lambda _: None), within_s=2.0)
    async with _served(reader) as target, grpc.aio.insecure_channel(target) as channel:
        answer = await channel.stream_unary("/test.Echo/Echo")(iter([b"\x0a\x01x"]), timeout=BOUND_S)
        assert answer == b"\x0a\x01x"
        half = channel.stream_unary("/test.Echo/Echo")(timeout=BOUND_S)  # nothing of it is sent
        assert await refused(half) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_INCOMPLETE")
        longer = channel.stream_unary("/test.Echo/Echo")(iter([b"\x0a\x7f" + b"x" * 127]), timeout=BOUND_S)
        assert await refused(longer) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


_PLACES = 4


class _Halves:
    """Requests that are begun one after the other, and of which nothing is sent, to a reader with four places."""

    def __init__(self, folder: Path) -> None:
        self.reader = RequestReader(UnreadAnswers(lambda _: None), max_arriving=_PLACES)
        self.socket = folder / "s"
        self._stack = contextlib.AsyncExitStack()
        self._tcp = ""

    async def __aenter__(self) -> Self:
        self._tcp = await self._stack.enter_async_context(_served(self.reader, str(self.socket)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connection(self, *, unix: bool = False) -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = f"unix:{self.socket}" if unix else self._tcp
        return await self._stack.enter_async_context(grpc.aio.insecure_channel(target, options=options))

    async def begin(self, channel: grpc.aio.Channel) -> grpc.aio.StreamUnaryCall[bytes, bytes]:
        before = set(self.reader._arriving)
        half = channel.stream_unary("/test.Echo/Echo")(timeout=BOUND_S)
        async with asyncio.timeout(BOUND_S):
            while set(self.reader._arriving) <= before:  # noqa: ASYNC110 - until gRPC has it
                await asyncio.sleep(0.001)
        return half


async def _finished(half: grpc.aio.StreamUnaryCall[bytes, bytes]) -> bytes:
    await half.write(b"\x0a\x01x")
    await half.done_writing()
    return await half


async def _made_room(half: grpc.aio.StreamUnaryCall[bytes, bytes]) -> bool:
    return await refused(half) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_INCOMPLETE")


async def test_newer_requests_of_one_connection_leave_anothers_slow_one(tmp_path: Path) -> None:
    async with _Halves(tmp_path) as halves:
        slow = await halves.begin(await halves.connection())
        flood = await halves.connection()
        newer = [await halves.begin(flood) for _ in range(2 * _PLACES)]
        assert all([await _made_room(each) for each in newer[: 1 - _PLACES]])
        for each in (slow, *newer[1 - _PLACES :]):
            assert await _finished(each) == b"\x0a\x01x"


async def test_newer_requests_of_many_connections_leave_the_slow_one_of_another_caller(tmp_path: Path) -> None:
    async with _Halves(tmp_path) as halves:
        slow = await halves.begin(await halves.connection(unix=True))
        newer = [await halves.begin(await halves.connection()) for _ in range(2 * _PLACES)]
        assert all([await _made_room(each) for each in newer[: 1 - _PLACES]])
        for each in (slow, *newer[1 - _PLACES :]):
            assert await _finished(each) == b"\x0a\x01x"


async def test_the_oldest_of_whoever_is_alone_makes_room(tmp_path: Path) -> None:
    async with _Halves(tmp_path) as halves:
        connection = await halves.connection(unix=True)
        oldest, *rest = [await halves.begin(connection) for _ in range(_PLACES + 1)]
        assert await _made_room(oldest)
        assert [await _finished(each) for each in rest] == [b"\x0a\x01x"] * _PLACES


def test_what_is_counted_apart_leaves_the_rest_its_bounds() -> None:
    answers = UnreadAnswers(lambda _: None)
    apart = answers.apart(OPEN_BOUNDS)
    apart.add("ipv4:1", OPEN_BOUNDS.connection_bytes + OPEN_BOUNDS.margin_bytes)
    with pytest.raises(RefusedError):
        apart.add("ipv4:1", 1)
    answers.add("ipv4:1", OPEN_BOUNDS.connection_bytes)
    answers.check("ipv4:1")
