"""HTTP transport of engines: counts what comes, sends the key, and takes nothing from the environment.

Imported where an engine is configured alone: `httpx2` is part of the extra.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn

import httpx2

from fumehood_server.config.engines import EngineConfig, Provider
from fumehood_server.orchestration.engines.engine import MAX_ANSWER_BYTES

CONNECT_TIMEOUT_S = 10.0
"""A machine that can be reached answers a SYN within it, retransmissions included."""
KEEPALIVE_S = 30.0
"""A connection without a request for this long is closed. Servers close theirs after a minute or so."""

MAX_CHUNKS = 65_536
"""Of an answer: h11 takes 12 µs for one, however short. A token in each leaves 64 bytes for a token."""
MAX_EVENT_LINES = 64
"""Of one server-sent event, which has one or two."""
MAX_EVENT_BYTES = 1024 * 1024
"""Likewise: as much as a server may say at once that doesn't stream."""
PIECE_BYTES = 4096
"""Read before others get their turn: the shortest events cost an SDK some milliseconds for as many bytes."""
CHUNK_COST_BYTES = 64
"""What a chunk counts beside its bytes."""

_SENT = frozenset(
    (
        *("host", "content-type", "content-length", "transfer-encoding", "connection", "accept"),
        *("anthropic-version", "anthropic-beta"),
    )
)
"""Headers that are sent as the SDK has them. The others tell of this machine, come from variables, or are cookies."""


class AnswerTooLargeError(Exception):
    """An answer is not within its bounds."""


class AnswerRefusedError(Exception):
    """An answer is compressed, so that what it decodes to would not be bounded, or leads elsewhere."""


@dataclass(slots=True)
class Exchange:
    """One request to an engine, for its transport, which no SDK hands anything through."""

    key: str = ""
    """Empty: none is sent."""
    fault: Exception | None = None
    """Why the transport ended it, however the SDK wraps that."""


EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")
"""Of the task that asks."""


def new_client(config: EngineConfig) -> httpx2.AsyncClient:
    """The HTTP client of one engine, to be closed with it."""
    most = config.max_concurrent
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=KEEPALIVE_S)
    transport = EngineTransport(config, httpx2.AsyncHTTPTransport(trust_env=False, limits=limits, retries=0))
    timeout = httpx2.Timeout(config.timeout_s, connect=min(CONNECT_TIMEOUT_S, config.timeout_s))
    return httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False, follow_redirects=False)


class EngineTransport(httpx2.AsyncBaseTransport):
    """Sends to the engine's own address alone, and reads a bounded answer."""

    def __init__(self, config: EngineConfig, inner: httpx2.AsyncHTTPTransport) -> None:
        """Over `inner`, which it owns."""
        self._inner = inner
        self._origin = _origin(httpx2.URL(config.base_url))
        self._key_header, self._key_form = _KEY_HEADERS[config.provider]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it with the key of the task's `Exchange`.

        Raises:
            AnswerRefusedError: the answer is compressed, or a redirect.
            httpx2.TransportError: it could not be sent, or no answer came.
        """
        exchange = EXCHANGE.get()
        if _origin(request.url) != self._origin:  # an SDK's own doing: a key goes nowhere else
            raise httpx2.UnsupportedProtocol("the request is for another address than the engine's")
        headers = {name: value for name, value in request.headers.items() if name.lower() in _SENT}
        headers |= {"accept-encoding": "identity", "user-agent": "fumehood"}
        if exchange.key:
            headers[self._key_header] = self._key_form.format(exchange.key)
        request.headers = httpx2.Headers(headers)
        response = await self._inner.handle_async_request(request)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - what an asynchronous transport gives
        refused = "it is a redirect" if response.status_code in range(300, 400) else ""
        if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
            refused = "it is compressed"
        if refused:
            await stream.aclose()
            exchange.fault = AnswerRefusedError(refused)
            raise exchange.fault
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_CountedStream(stream, exchange, EventBounds() if response.is_success else None),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close its connections."""
        await self._inner.aclose()


class _CountedStream(httpx2.AsyncByteStream):
    """A body within all bounds, in pieces that leave others their turn."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange, events: EventBounds | None) -> None:
        self._inner = inner
        self._exchange = exchange
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = chunks = due = 0
        async for chunk in self._inner:
            received, chunks = received + len(chunk), chunks + 1
            if received > MAX_ANSWER_BYTES:
                self._refuse(f"it has more than {MAX_ANSWER_BYTES} bytes")
            if chunks > MAX_CHUNKS:
                self._refuse(f"it comes in more than {MAX_CHUNKS} chunks")
            for start in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[start : start + PIECE_BYTES]
                if self._events is not None and not self._events.take(piece):
                    self._refuse(f"an event of it has more than {MAX_EVENT_LINES} lines or {MAX_EVENT_BYTES} bytes")
                yield piece
                due += len(piece) + CHUNK_COST_BYTES
                if due >= PIECE_BYTES:
                    due = 0
                    await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _refuse(self, reason: str) -> NoReturn:
        self._exchange.fault = AnswerTooLargeError(reason)
        raise self._exchange.fault


class EventBounds:
    """Counts lines and bytes of each server-sent event: an SDK copies an event anew for each line that comes."""

    __slots__ = ("_bytes", "_last", "_lines")

    def __init__(self) -> None:
        """At the beginning of a stream."""
        self._last = b""
        """As much as a blank line may have begun in."""
        self._lines = self._bytes = 0

    def take(self, piece: bytes) -> bool:
        """Whether the stream keeps to `MAX_EVENT_LINES` and `MAX_EVENT_BYTES` with its next piece."""
        window, carried = self._last + piece, len(self._last)
        self._last = window[-3:]
        blank = _BLANK_LINE.search(window)
        if blank is None:
            self._lines, self._bytes = self._lines + _lines(piece), self._bytes + len(piece)
            return self._is_within()
        # The event that ends here, then the one that begins last: those between are as small as the piece.
        self._lines += _lines(window[carried : blank.end()])
        self._bytes += max(0, blank.end() - carried)
        ended_well = self._is_within()
        rest = window[max(window.rfind(each) + len(each) for each in _BLANK_LINES if each in window) :]
        self._lines, self._bytes = _lines(rest), len(rest)
        return ended_well

    def _is_within(self) -> bool:
        return self._lines <= MAX_EVENT_LINES and self._bytes <= MAX_EVENT_BYTES


_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n")
_BLANK_LINE = re.compile(rb"\n\n|\r\r|\r\n\r\n")


def _lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


_KEY_HEADERS = {Provider.OPENAI: ("authorization", "Bearer {}"), Provider.ANTHROPIC: ("x-api-key", "{}")}


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


__all__ = [
    "EXCHANGE",
    "AnswerRefusedError",
    "AnswerTooLargeError",
    "EngineTransport",
    "EventBounds",
    "Exchange",
    "new_client",
]
