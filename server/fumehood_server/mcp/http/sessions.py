"""The SDK's session manager: one caller leaves others sessions, messages are bounded, and ids in a session differ."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import (
    LAST_EVENT_ID_HEADER,
    MCP_SESSION_ID_HEADER,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fumehood_server.mcp.http.bearer import CALLER
from fumehood_server.mcp.http.request_ids import MalformedRequestIdError, RequestIds, read_request_id
from fumehood_server.mcp.places import share_of
from fumehood_server.model.json_counts import counting

_LAST_EVENT_ID = LAST_EVENT_ID_HEADER.encode()


class SharedSessionManager(StreamableHTTPSessionManager):
    """Refuses a session above a caller's share as it does one above the bound. Callers without a token share one.

    Refuses a message that holds too much to be parsed, and a request whose id is malformed or under way in its session.
    """

    def __init__(self, server: Server[Any], **bounds: Any) -> None:  # noqa: ANN401 - the SDK's own
        """See the SDK. The server is to be this manager's alone."""
        super().__init__(server, **bounds)
        self._request_ids = RequestIds()
        server.middleware.append(self._request_ids.handle)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is None:
            held = len(self._server_instances) - len(self._session_owners)
        else:
            held = sum(owner == requestor for owner in self._session_owners.values())
        if self.max_sessions is not None and held >= share_of(self.max_sessions):
            return None
        return super()._admit_session(requestor)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await super()._handle_request(scope, receive, send)
            return
        body, again = await _read_body(receive)
        for problem in counting((body,)):
            if problem:
                await _refusal(f"the message has {problem}")(scope, again, send)
                return
            await asyncio.sleep(0)
        await super()._handle_request(scope, again, send)

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Nothing is kept that could be told again, and a server need not (Streamable HTTP, resumability): the stream
        # begins anew. The SDK would answer nothing at all.
        headers = [(name, value) for name, value in scope["headers"] if name != _LAST_EVENT_ID]
        scope = {**scope, "headers": headers}
        if scope["method"] != "POST":
            await super()._handle_stateful_request(scope, receive, send)
            return
        body, again = await _read_body(receive)
        try:
            request_id = read_request_id(body)
        except MalformedRequestIdError as exc:
            await _refusal(str(exc))(scope, again, send)
            return
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None:
            await super()._handle_stateful_request(scope, again, send)
            return
        # By its sender too: who isn't the session's owner takes no id of the owner's, and is answered by the SDK.
        owner = (session, scope[CALLER].share)
        async with self._request_ids.taken(owner, request_id, scope) as may_be:
            if may_be:
                await super()._handle_stateful_request(scope, again, send)
            else:
                await _refusal("a request of this id is under way in the session")(scope, again, send)


async def _read_body(receive: Receive) -> tuple[bytes, Receive]:
    """The whole body, which the SDK's bound of it has read before, and what gives it again."""
    first = await receive()
    body: bytes = first.get("body", b"")

    async def again() -> Message:
        nonlocal first
        message, first = first, {}
        return message or await receive()

    return body, again


def _refusal(problem: str) -> Response:
    error = ErrorData(code=INVALID_REQUEST, message=problem)
    # Without an id: it is that of another request, which has its own answer, or was not read.
    body = JSONRPCError(jsonrpc="2.0", id=None, error=error)
    return Response(body.model_dump_json(by_alias=True, exclude_unset=True), 400, media_type="application/json")
