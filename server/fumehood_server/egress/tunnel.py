"""CONNECT tunnel: copies bytes both ways between a program and a host, up to a size and a time."""

from __future__ import annotations

import asyncio

from fumehood_server.egress.byte_count import ByteCount
from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.stream import Stream
from fumehood_server.egress.turns import PluginTurns


class ProgramDisconnectedError(ConnectionError):
    """The program closed or reset its connection, as many do when they have what they want."""


async def tunnel(
    inner: Stream,
    outer: Stream,
    byte_count: ByteCount,
    turns: PluginTurns,
    *,
    early: bytes,
    max_bytes: int,
    timeout_s: float,
) -> None:
    """Copy bytes until both sides have sent EOF. The EOF of one is passed to the other, which may go on sending.

    `early` is what was received from the program before. `byte_count` counts what goes to `outer` as sent. A side that
    sends very small pieces is read in `turns`. The caller closes both streams.

    Raises:
        EgressFailedError: `TUNNEL_TOO_LARGE`, `TIMEOUT`, or `CONNECTION_LOST` where `outer` was lost.
        ProgramDisconnectedError: `inner` was lost.
    """

    def count(*, sent: int = 0, received: int = 0) -> None:
        byte_count.sent += sent
        byte_count.received += received
        if byte_count.sent + byte_count.received > max_bytes:
            raise EgressFailedError(Reason.TUNNEL_TOO_LARGE, f"more than {max_bytes} bytes through one tunnel")

    async def outward() -> None:
        data = early or await _read_program(inner)
        while data:
            count(sent=len(data))
            await outer.send_all(data)
            await turns.pace(len(data))
            data = await _read_program(inner)
        outer.send_eof()

    async def inward() -> None:
        while data := await outer.receive_some():
            count(received=len(data))
            await _write_program(inner, data)
            await turns.pace(len(data))
        inner.send_eof()

    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as both:
            both.create_task(outward(), name="egress tunnel outward")
            both.create_task(inward(), name="egress tunnel inward")
    except TimeoutError:
        raise EgressFailedError(Reason.TIMEOUT, f"the tunnel was open for more than {timeout_s:g} s") from None
    except ExceptionGroup as group:
        first = group.exceptions[0]
        if isinstance(first, OSError) and not isinstance(first, ProgramDisconnectedError):
            raise EgressFailedError(Reason.CONNECTION_LOST, f"the tunnel broke: {first}") from first
        raise first from None


async def _read_program(inner: Stream) -> bytes:
    try:
        return await inner.receive_some()
    except OSError as error:
        raise ProgramDisconnectedError(str(error)) from error


async def _write_program(inner: Stream, data: bytes) -> None:
    try:
        await inner.send_all(data)
    except OSError as error:
        raise ProgramDisconnectedError(str(error)) from error
