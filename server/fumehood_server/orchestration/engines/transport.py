"""HTTP transport of engines: counts what comes, sends the key, and takes nothing from the environment.

Imported where an engine is configured alone: `httpx2` is part of the extra.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

import httpcore2
import httpx2

from fumehood_server.config.engines import EngineConfig, Provider
from fumehood_server.orchestration.engines.engine import MAX_ANSWER_BYTES
from fumehood_server.orchestration.engines.event_bounds import MAX_EVENT_BYTES, MAX_EVENT_LINES, EventBounds
from fumehood_server.orchestration.engines.exchange import (
    EXCHANGE,
    AnswerRefusedError,
    AnswerTooLargeError,
    Exchange,
)
from fumehood_server.orchestration.engines.head_bounds import HeadBoundedBackend

CONNECT_TIMEOUT_S = 10.0
"""A machine that can be reached answers a SYN within it, retransmissions included."""
KEEPALIVE_S = 30.0
"""A connection without a request for this long is closed. Servers close theirs after a minute or so."""

MAX_CHUNKS = 65_536
"""Of an answer: h11 takes 12 µs for one, however short. A token in each leaves 64 bytes for a token."""
MAX_ERROR_BYTES = 64 * 1024
"""Read of an answer that is an error: an SDK parses it in one go, and a few hundred characters of it are told."""
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


def new_client(config: EngineConfig) -> httpx2.AsyncClient:
    """The HTTP client of one engine, to be closed with it."""
    most = config.max_concurrent
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=KEEPALIVE_S)
    transport = EngineTransport(config, _new_transport(limits))
    timeout = httpx2.Timeout(config.timeout_s, connect=min(CONNECT_TIMEOUT_S, config.timeout_s))
    return httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False, follow_redirects=False)


def _new_transport(limits: httpx2.Limits) -> httpx2.AsyncHTTPTransport:
    """Httpx's transport over connections whose heads are bounded, for which it has no option."""
    transport = httpx2.AsyncHTTPTransport(trust_env=False, limits=limits, retries=0)
    transport._pool = httpcore2.AsyncConnectionPool(  # noqa: SLF001 - likewise
        ssl_context=httpx2.create_ssl_context(trust_env=False),
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        network_backend=HeadBoundedBackend(),
    )
    return transport


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
            AnswerTooLargeError: its heads have no end.
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
        exchange.has_head, exchange.head_bytes = False, 0
        response = await self._inner.handle_async_request(request)
        exchange.has_head = True
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - what an asynchronous transport gives
        refused = "it is a redirect" if response.status_code in range(300, 400) else ""
        if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
            refused = "it is compressed"
        if refused:
            await stream.aclose()
            exchange.refuse(AnswerRefusedError(refused))
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
    """A body within all bounds, in pieces that leave others their turn. Of an error, the beginning is all there is."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange, events: EventBounds | None) -> None:
        """`events` None: it is an error."""
        self._inner = inner
        self._exchange = exchange
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = chunks = due = 0
        async for chunk in self._inner:
            chunks += 1
            if chunks > MAX_CHUNKS:
                self._refuse(f"it comes in more than {MAX_CHUNKS} chunks")
            if self._events is None:
                chunk = chunk[: MAX_ERROR_BYTES - received]  # noqa: PLW2901 - the rest is not looked at
            received += len(chunk)
            if received > MAX_ANSWER_BYTES:
                self._refuse(f"it has more than {MAX_ANSWER_BYTES} bytes")
            for start in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[start : start + PIECE_BYTES]
                if self._events is not None and not self._events.take(piece):
                    self._refuse(_EVENT_TOO_LARGE)
                yield piece
                due += len(piece) + CHUNK_COST_BYTES
                if due >= PIECE_BYTES:
                    due = 0
                    await asyncio.sleep(0)
            if self._events is None and received >= MAX_ERROR_BYTES:
                return
        if self._events is not None and not self._events.end():
            self._refuse(_EVENT_TOO_LARGE)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _refuse(self, reason: str) -> NoReturn:
        self._exchange.refuse(AnswerTooLargeError(reason))


_EVENT_TOO_LARGE = (
    f"an event of it has more than {MAX_EVENT_LINES} lines or {MAX_EVENT_BYTES} bytes, or holds too many values"
)
_KEY_HEADERS = {Provider.OPENAI: ("authorization", "Bearer {}"), Provider.ANTHROPIC: ("x-api-key", "{}")}


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


__all__ = ["EngineTransport", "new_client"]
