"""Bound of what comes before the final head of an answer (RFC 9110, 15.2), counted on the network stream.

httpcore drops informational heads (1xx) beneath the HTTP transport, as many as there come, and each takes 40 µs of the
loop that all engines share. It bounds a single head alone, and has no hook for them.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2

from fumehood_server.orchestration.engines.exchange import EXCHANGE, AnswerTooLargeError

MAX_HEAD_BYTES = 64 * 1024
"""Of all heads of one answer. Servers send a few hundred, and some kilobytes with cookies and policies."""
HEAD_READ_BYTES = 4096
"""Read at once until the final head is there: others get their turn in between."""


class HeadBoundedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections whose reads are bounded by the `Exchange` of the task that reads."""

    def __init__(self) -> None:
        """Over asyncio."""
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See httpcore."""
        return _HeadBoundedStream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        """See httpcore."""
        await self._inner.sleep(seconds)


class _HeadBoundedStream(httpcore2.AsyncNetworkStream):
    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - likewise
        exchange = EXCHANGE.get()
        if exchange.has_head:
            return await self._inner.read(max_bytes, timeout)
        if exchange.head_bytes >= MAX_HEAD_BYTES:
            exchange.refuse(AnswerTooLargeError(f"its heads have more than {MAX_HEAD_BYTES} bytes"))
        data = await self._inner.read(min(max_bytes, HEAD_READ_BYTES), timeout)
        exchange.head_bytes += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - likewise
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - likewise
    ) -> httpcore2.AsyncNetworkStream:
        return _HeadBoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's interface
        return self._inner.get_extra_info(info)


__all__ = ["HEAD_READ_BYTES", "MAX_HEAD_BYTES", "HeadBoundedBackend"]
