"""Bytes both ways between a program and the host that it named in CONNECT, within bounds."""

from __future__ import annotations

import asyncio

from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.stream import Stream, Tally


class ProgramLeftError(ConnectionError):
    """The program broke its side off, as many do when they have what they want."""


async def tunnel(inner: Stream, outer: Stream, tally: Tally, *, early: bytes, max_bytes: int, timeout_s: float) -> None:
    """Carry bytes until both sides have ended. Where one ends, the other is told, and may go on.

    `early` is what the program had sent already. `tally` counts what goes to `outer` as sent. Closing both is the
    caller's.

    Raises:
        EgressFailedError: `TUNNEL_TOO_LARGE`, `TIMEOUT`, or `CONNECTION_LOST` where `outer` broke off.
        ProgramLeftError: `inner` broke off.
    """

    def count(*, sent: int = 0, received: int = 0) -> None:
        tally.sent += sent
        tally.received += received
        if tally.sent + tally.received > max_bytes:
            raise EgressFailedError(Reason.TUNNEL_TOO_LARGE, f"more than {max_bytes} bytes through one tunnel")

    async def outward() -> None:
        data = early or await _heard(inner)
        while data:
            count(sent=len(data))
            await outer.write(data)
            data = await _heard(inner)
        outer.write_eof()

    async def inward() -> None:
        while data := await outer.read():
            count(received=len(data))
            await _tell(inner, data)
        inner.write_eof()

    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as both:
            both.create_task(outward(), name="egress tunnel outward")
            both.create_task(inward(), name="egress tunnel inward")
    except TimeoutError:
        raise EgressFailedError(Reason.TIMEOUT, f"the tunnel was open for more than {timeout_s:g} s") from None
    except ExceptionGroup as group:
        first = group.exceptions[0]
        if isinstance(first, OSError) and not isinstance(first, ProgramLeftError):
            raise EgressFailedError(Reason.CONNECTION_LOST, f"the tunnel broke: {first}") from first
        raise first from None


async def _heard(inner: Stream) -> bytes:
    try:
        return await inner.read()
    except OSError as error:
        raise ProgramLeftError(str(error)) from error


async def _tell(inner: Stream, data: bytes) -> None:
    try:
        await inner.write(data)
    except OSError as error:
        raise ProgramLeftError(str(error)) from error
