"""uvicorn's HTTP/1.1 connection (httptools), bounded: in number, in time, in what a request holds beside its body."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's head; and of trailers, chunk extensions and whatever else is no body, between two pieces of one."""

MAX_HEADERS = 128
"""Each look at a header reads them all."""

MIN_READ_BYTES = 64 * 1024
"""Of an answer that lies ready, in each `read_timeout_s`."""


class BoundedConnection(HttpToolsProtocol):
    """One connection, on which one request is under way at a time.

    httptools itself takes a head of any size and waits for it for ever, has trailers among the headers (which RFC 9110,
    6.5.1 forbids), and takes what follows the head of a request with `Upgrade` for another protocol's. uvicorn queues
    requests that come before an answer, and waits for ever for a client to read one.
    """

    max_connections: ClassVar[int] = 1024
    """One more is closed at once."""

    head_timeout_s: ClassVar[float] = 10.0
    """From a connection's beginning, or a request's first byte, to the end of its head."""

    body_timeout_s: ClassVar[float] = 30.0
    """From there to the end of its body, also where the answer was given before."""

    read_timeout_s: ClassVar[float] = 60.0

    _receiving: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    _in_head = False
    _has_message = False
    """Whether a request has begun that has not come whole."""
    _head_bytes = 0
    _loose_bytes = 0
    """Since the last end of a head, or piece of a body."""

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
        self._expect_within(self.head_timeout_s)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._receiving is None and self._is_answered():
            self._expect_within(self.head_timeout_s)
        self._loose_bytes += len(data)
        super().data_received(data)
        if self._loose_bytes > MAX_HEAD_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """See httptools."""
        if not self._is_answered():
            raise _RefusedError("a request before the answer to the last one")
        self._in_head = self._has_message = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._take_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools, which leaves the white space behind a value (RFC 9110, 5.5)."""
        if self._in_head:
            self._take_head(len(name) + len(value))
            super().on_header(name, value.strip(b" \t"))
            if len(self.headers) > MAX_HEADERS:
                raise _RefusedError("too many headers")

    def on_headers_complete(self) -> None:
        """See httptools."""
        if self.parser.should_upgrade():
            raise _RefusedError("another protocol")
        if not self.url.startswith(b"/"):  # a URL's host would have to hold in place of `Host` (RFC 9112, 3.2.2)
            raise _RefusedError("no path")
        self._in_head = False
        self._loose_bytes = 0
        self._expect_within(self.body_timeout_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._has_message = False
        self._stop_receiving()
        super().on_message_complete()
        if self._is_answered():  # before its body was there, whose first piece has ended uvicorn's own timer
            self._expect_within(self.head_timeout_s)

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_read()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn."""
        if self._in_head or self._is_answered() or (self._has_message and not self.cycle.response_started):
            super().send_400_response(msg)
            self._expect_read()
        else:
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """See uvicorn."""
        self.transport.abort()  # closing would wait for what the client doesn't read

    def pause_writing(self) -> None:
        """See asyncio."""
        super().pause_writing()
        self._expect_read()

    def resume_writing(self) -> None:
        """See asyncio."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_sending()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._stop_receiving()
        self._stop_sending()
        super().connection_lost(exc)

    def _is_answered(self) -> bool:
        cycle: object = self.cycle  # uvicorn's annotation leaves out that there is none at first
        return cycle is None or self.cycle.response_complete

    def _take_head(self, more_bytes: int) -> None:
        self._head_bytes += more_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _RefusedError("too large a head")

    def _expect_within(self, timeout_s: float) -> None:
        self._stop_receiving()
        self._receiving = self.loop.call_later(timeout_s, self.transport.abort)

    def _expect_read(self) -> None:
        """From now on the client has to take what lies ready for it, piece by piece."""
        self._stop_sending()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._sending = self.loop.call_later(self.read_timeout_s, self._look_at_what_was_read)

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _look_at_what_was_read(self) -> None:
        if self.transport.get_write_buffer_size() > self._unsent_bytes - MIN_READ_BYTES:
            self.transport.abort()
        else:
            self._expect_read()


class _RefusedError(Exception):
    """A request that isn't taken: httptools ends its parsing, and uvicorn answers 400."""


__all__ = ["BoundedConnection"]
