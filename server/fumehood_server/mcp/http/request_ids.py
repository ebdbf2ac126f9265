"""Ids of the requests under way in each session (through 2025-11-25): none may come again before its first has ended.

The SDK finds an answer's stream by the request's id, so that a second request of one id would take over the first
one's. It takes a number and the text of it for one id, in some of its places, so both are one here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pydantic_core
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId
from starlette.types import Scope

from fumehood_server.errors import FumehoodError

_REQUEST = "fumehood.request"
"""Key of the ASGI scope that holds the request's `_Request`."""

Owner = tuple[str, str]
"""A session, and who uses it."""


class MalformedRequestIdError(FumehoodError):
    """A request's id is none of JSON-RPC's. The client must act."""


class _Request:
    """One that has an id. It is under way while its HTTP request is, and while it is handled."""

    __slots__ = ("ended", "in_http", "is_answered", "is_handled", "key")

    def __init__(self, key: tuple[Owner, RequestId]) -> None:
        self.key = key
        self.in_http = True
        self.is_handled = self.is_answered = False
        self.ended = asyncio.Event()


class RequestIds:
    """Which requests are under way. For one event loop."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        """None is."""
        self._under_way: dict[tuple[Owner, RequestId], _Request] = {}

    @contextlib.asynccontextmanager
    async def taken(self, owner: Owner, request_id: RequestId | None, scope: Scope) -> AsyncIterator[bool]:
        """Whether a request of this id may be handled; it is under way within the block.

        One whose id's first request has its answer already waits until that was sent, and may be.
        """
        if request_id is None:  # a notification, an answer, or nothing that the SDK takes
            yield True
            return
        key = (owner, coerce_request_id(request_id))
        while (other := self._under_way.get(key)) is not None and other.is_answered:
            await other.ended.wait()
        if other is not None or request_id == GET_STREAM_KEY:  # under which the SDK has the session's own stream
            yield False
            return
        request = scope[_REQUEST] = self._under_way[key] = _Request(key)
        try:
            yield True
        finally:
            request.in_http = False
            self._leave(request)

    async def handle(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware of the SDK's server: what is handled is under way, whatever has become of its HTTP request."""
        request: _Request | None = ctx.request.scope.get(_REQUEST) if ctx.request is not None else None
        if request is None or ctx.request_id is None:
            return await call_next(ctx)
        request.is_handled = True
        self._under_way.setdefault(request.key, request)
        try:
            return await call_next(ctx)
        finally:
            request.is_handled, request.is_answered = False, True
            self._leave(request)

    def _leave(self, request: _Request) -> None:
        if not (request.in_http or request.is_handled):
            request.ended.set()
            if self._under_way.get(request.key) is request:
                del self._under_way[request.key]


def read_request_id(body: bytes) -> RequestId | None:
    """The id of a request; None of what else a client sends, or nothing that the SDK takes.

    Raises:
        MalformedRequestIdError: it is a request whose id is none of JSON-RPC's. The SDK would take it for a
            notification, which has no answer.
    """
    try:
        message = pydantic_core.from_json(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or "method" not in message or "id" not in message:
        return None
    found = message["id"]
    if not isinstance(found, int | str) or isinstance(found, bool):
        raise MalformedRequestIdError("a request's id is a text or a whole number")
    return found
