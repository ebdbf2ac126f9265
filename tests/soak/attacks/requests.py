"""Callers whose requests hold as much as two bytes a piece can, or are half here where nobody is asked for a token."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc.aio
from fumehood.v1 import tool_service_pb2 as pb

from tests.soak.arena import CALL_TIMEOUT_S, Arena
from tests.soak.http2 import RawConnection, grpc_message

_BYTES = 2 << 20
_HEALTH = "/grpc.health.v1.Health/Check"
_REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
_HALF = grpc_message(bytes(_BYTES))[:-1]
_CONNECTIONS = 10
_STREAMS = 40
_READERS = 4
_AGAIN_S = 0.1
"""Between a session that was refused and the next."""
_QUESTIONS = 20
_WINDOW_BYTES = 60_000
_WINDOWS = 4000
_UNREAD_STREAMS = 1000
_DESCRIBED = grpc_message(b"\x22\x17fumehood.v1.ToolService")
"""`file_containing_symbol`."""


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*made, number))


def _many(number: int) -> bytes:
    """A million empty fields of this number."""
    return _field(number, b"") * (_BYTES // 2)


_REQUESTS = {
    "ToolService/CallTool": b"\xa0\x1f\x00" * (_BYTES // 3),
    "ToolService/CallTools": _many(1),
    "ToolService/ListTools": _many(5),
    "McpService/GetPrompt": _many(3),
    "ApprovalService/DecideApproval": _field(1, b"x") + b"\x10\x01" + _field(6, _many(5)),
    "OrchestrationService/Run": _field(1, _many(4)),
    "OrchestrationService/SteerRun": _field(1, b"x") + _many(2),
    "JournalService/ListEvents": _field(1, _many(5)),
}


async def million_fields(arena: Arena) -> None:
    """One after the other of the requests, on each of some lanes, of two connections."""
    async with arena.channel() as one, arena.channel() as other:

        async def all_of_them() -> None:
            for number, (method, data) in enumerate(_REQUESTS.items()):
                channel = (one, other)[number % 2]
                ask = channel.stream_unary(f"/fumehood.v1.{method}", bytes, bytes)
                if await arena.counted(ask(iter([data]), timeout=CALL_TIMEOUT_S)) is not None:
                    arena.outcomes["! answered"] += 1

        await arena.repeat(all_of_them, lanes=4)


async def million_combined(arena: Arena) -> None:
    """Sessions that combine a million requests in a message, and then as many as they may."""
    many = _field(4, _many(1))
    cancels = [pb.SessionRequest(cancel=pb.CancelCallRequest(call_id=f"x-{number}")) for number in range(128)]
    allowed = pb.SessionRequest(combined=pb.SessionRequests(requests=cancels)).SerializeToString()

    async def session() -> None:
        async with arena.channel() as channel:
            open_session = channel.stream_stream(
                "/fumehood.v1.ToolService/Session", bytes, pb.SessionResponse.FromString
            )
            stream: Any = open_session()  # type: ignore[call-arg] # it is written to

            async def read() -> None:
                while isinstance(answer := await stream.read(), pb.SessionResponse):
                    arena.outcomes[f"refused: {answer.refused.error.code}"] += 1

            reading = asyncio.create_task(read())
            # Beside other attacks a session may be refused at any moment. What is read says why.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while arena.left_s:
                    await stream.write(many)
                    await stream.write(allowed)
                await stream.done_writing()
            await arena.counted(reading)
            await asyncio.sleep(_AGAIN_S)

    await arena.repeat(session, lanes=_READERS)


async def half_sent_health(arena: Arena) -> None:
    """Requests to health whose last byte never comes."""
    await _half_sent(arena, _HEALTH)


async def full_windows(arena: Arena) -> None:
    """Very many requests to health at once, each with as much as is taken of one before it is read."""
    part = _HALF[:_WINDOW_BYTES]

    async def one() -> None:
        connection = await RawConnection.connect(arena.public)
        try:
            for _ in range(_WINDOWS):
                await connection.send(connection.open_stream(_HEALTH), part)
                arena.outcomes["sent"] += 1
            await arena.sleep_until_end()
        finally:
            connection.close()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s):
            await asyncio.gather(*(one() for _ in range(_READERS)))


async def reflection(arena: Arena) -> None:
    """Requests to reflection whose last byte never comes, and answers of it that nobody reads."""
    await asyncio.gather(_half_sent(arena, _REFLECTION), _unread(arena))


async def _half_sent(arena: Arena, path: str) -> None:
    async def lane(connection: RawConnection) -> None:
        while not connection.closed:
            stream = connection.open_stream(path)
            arena.outcomes["begun"] += 1
            await connection.send(stream, _HALF)
            await connection.until_ended(stream)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s), contextlib.AsyncExitStack() as stack:
            lanes = []
            for _ in range(_CONNECTIONS):
                connection = await RawConnection.connect(arena.public)
                stack.callback(connection.close)
                lanes += [lane(connection) for _ in range(_STREAMS)]
            await asyncio.gather(*lanes)
            await arena.sleep_until_end()


async def _unread(arena: Arena) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(arena.left_s), contextlib.AsyncExitStack() as stack:
            for _ in range(_READERS):
                connection = await RawConnection.connect(arena.public)
                stack.callback(connection.close)
                for _ in range(_UNREAD_STREAMS):
                    await connection.send(connection.open_stream(_REFLECTION), _DESCRIBED * _QUESTIONS)
                    arena.outcomes["sent"] += 1
            await arena.sleep_until_end()
