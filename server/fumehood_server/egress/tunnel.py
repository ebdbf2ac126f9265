"""Bytes both ways between a program and the host that it named in CONNECT, within bounds."""

from __future__ import annotations

import asyncio

from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.stream import Stream, Tally


async def tunnel(inner: Stream, outer: Stream, tally: Tally, *, early: bytes, max_bytes: int, timeout_s: float) -> None:
    """Carry bytes until both sides have ended. Where one ends, the other is told, and may go on.

    `early` is what the program had sent already. `tally` counts what goes to `outer` as sent. Closing both is the
    caller's.

    Raises:
        EgressFailedError: `TUNNEL_TOO_LARGE`, `TIMEOUT`, or `CONNECTION_LOST` where either side broke off.
    """

    async def carry(source: Stream, target: Stream, data: bytes, *, outward: bool) -> None:
        while data or (data := await source.read()):
            if outward:
                tally.sent += len(data)
            else:
                tally.received += len(data)
            if tally.sent + tally.received > max_bytes:
                raise EgressFailedError(Reason.TUNNEL_TOO_LARGE, f"more than {max_bytes} bytes through one tunnel")
            await target.write(data)
            data = b""
        target.write_eof()

    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as both:
            both.create_task(carry(inner, outer, early, outward=True), name="egress tunnel outward")
            both.create_task(carry(outer, inner, b"", outward=False), name="egress tunnel inward")
    except TimeoutError:
        raise EgressFailedError(Reason.TIMEOUT, f"the tunnel was open for more than {timeout_s:g} s") from None
    except ExceptionGroup as group:
        first = group.exceptions[0]
        if isinstance(first, OSError):
            raise EgressFailedError(Reason.CONNECTION_LOST, f"the tunnel broke: {first}") from first
        raise first from None
