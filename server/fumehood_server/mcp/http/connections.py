"""uvicorn's HTTP/1.1 connection (httptools), bounded: in number, in the size of a head and in the time for it."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT_S = 10.0
"""From a connection's beginning, or a request's first byte, to the end of its head."""

MAX_HEAD_BYTES = 64 * 1024


class BoundedConnection(HttpToolsProtocol):
    """One connection. httptools itself takes a head of any size, and waits for it for ever."""

    max_connections: ClassVar[int] = 1024
    """One more is closed at once."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    @classmethod
    def of_at_most(cls, connections: int) -> type[BoundedConnection]:
        """The class for a server with so many."""
        return type("BoundedConnection", (cls,), {"max_connections": connections})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """See asyncio."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._head_timer is None and self._is_between_requests():
            self._expect_head()
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self._is_whole_head(data):
                self.transport.abort()
                return
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools, which leaves the white space behind a value (RFC 9110, 5.5)."""
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._stop_timer()
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        cycle: object = self.cycle  # uvicorn's annotation leaves out that there is none at first
        return cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _is_whole_head(self, data: bytes) -> bool:
        # One read brings 256 KiB at most: a small head with the beginning of a large body.
        return self._head_bytes == len(data) and b"\r\n\r\n" in data[:MAX_HEAD_BYTES]


__all__ = ["BoundedConnection"]
