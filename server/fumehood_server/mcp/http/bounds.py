"""Bounds of requests: how many are under way, how long a body may take to come, how long an answer to be read."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood_server.mcp.http.bearer import CALLER

BODY_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 60.0
"""For a client to take what lies in its connection's buffers, so that there is room for more."""


class UnreadError(Exception):
    """The client doesn't read its answer."""


class RequestBounds:
    """Refuses requests above the bounds, of which one caller can't take more than three quarters."""

    def __init__(self, app: ASGIApp, *, max_requests: int) -> None:
        """`max_requests` counts streams as well, which stay open."""
        self._app = app
        self._total = max_requests
        self._each = max(max_requests * 3 // 4, 1)
        self._taken: Counter[str] = Counter()
        self._all = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        identity = scope[CALLER].identity if scope[CALLER].token else "anonymous"
        if self._all >= self._total or self._taken[identity] >= self._each:
            body = {"error": "TOO_MANY_REQUESTS", "message": "too many requests and streams are open: close one"}
            await JSONResponse(body, 503, {"Retry-After": "1"})(scope, receive, send)
            return
        self._all += 1
        self._taken[identity] += 1
        try:
            with contextlib.suppress(UnreadError):
                await self._app(scope, _BodyInTime(receive), _AnswerRead(send))
        finally:
            self._all -= 1
            self._taken[identity] -= 1
            if not self._taken[identity]:
                del self._taken[identity]


class _BodyInTime:
    """ASGI's `receive`, which takes the connection for gone where the body doesn't come."""

    __slots__ = ("_deadline", "_has_body", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S
        self._has_body = False

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._has_body:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        self._has_body = not message.get("more_body", False)
        return message


class _AnswerRead:
    """ASGI's `send`, which gives up on a client that doesn't read."""

    __slots__ = ("_send",)

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._send(message)
        except TimeoutError:
            raise UnreadError from None
