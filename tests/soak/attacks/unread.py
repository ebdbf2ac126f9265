"""Callers that don't read what they asked for, or don't end what they ask."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fumehood.v1 import tool_service_pb2 as pb

from tests.rpc.support import call
from tests.soak.arena import Arena
from tests.soak.http2 import RawConnection, grpc_message

_MIB = 1 << 20
_SERVICE = "/fumehood.v1.ToolService/"
_RESULTS = 1000
_AT_ONCE = 100
_SESSIONS = 6
_CALLS_OF_A_SESSION = 1000
_STREAMS = 50
_HALVES = 600


@contextlib.asynccontextmanager
async def _connected(arena: Arena) -> AsyncIterator[RawConnection]:
    connection = await RawConnection.connect(arena.public)
    try:
        yield connection
    finally:
        connection.close()


async def results(arena: Arena) -> None:
    """Results that fill no window of the caller's, since it has none."""
    data = grpc_message(call("big", {"size": _MIB - 1000}).SerializeToString())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s), _connected(arena) as connection:
            for number in range(_RESULTS):
                await connection.send(connection.open_stream(_SERVICE + "CallTool"), data, end=True)
                arena.outcomes["sent"] += 1
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(arena.seconds / 20)  # so that they are no burst, which is another attack
            await arena.sleep_until_end()


async def sessions(arena: Arena) -> None:
    """Sessions that go on asking and never read."""

    async def one() -> None:
        async with _connected(arena) as connection:
            stream = connection.open_stream(_SERVICE + "Session")
            for number in range(_CALLS_OF_A_SESSION):
                request = pb.SessionRequest(call=call("big", {"size": _MIB - 1000}, call_id=f"{stream}-{number}"))
                await connection.send(stream, grpc_message(request.SerializeToString()))
                arena.outcomes["sent"] += 1
            await arena.sleep_until_end()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s):
            await asyncio.gather(*(one() for _ in range(_SESSIONS)))


async def updates(arena: Arena) -> None:
    """Streams of updates."""
    data = grpc_message(pb.StreamToolRequest(call=call("chatter", {"count": 90_000})).SerializeToString())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s), _connected(arena) as connection:
            for _ in range(_STREAMS):
                await connection.send(connection.open_stream(_SERVICE + "StreamTool"), data, end=True)
                arena.outcomes["sent"] += 1
            await arena.sleep_until_end()


async def half_sent(arena: Arena) -> None:
    """Requests whose last byte never comes."""
    data = grpc_message(call("echo", {"text": "x" * (_MIB - 1000)}).SerializeToString())[:-1]

    async def one() -> None:
        async with _connected(arena) as connection:
            arena.outcomes["begun"] += 1
            await connection.send(connection.open_stream(_SERVICE + "CallTool"), data)
            await arena.sleep_until_end()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s):
            await asyncio.gather(*(one() for _ in range(_HALVES)), return_exceptions=True)
