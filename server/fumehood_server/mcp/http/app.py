"""The ASGI application: the MCP endpoint behind its checks, and OAuth's metadata beside it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.door import McpDoor
from fumehood_server.mcp.http.bearer import CALLER, METADATA_PATH, BearerAuthentication, resource_metadata
from fumehood_server.mcp.http.bounds import RequestBounds
from fumehood_server.mcp.http.guard import HostAndOriginGuard
from fumehood_server.mcp.http.sessions import SharedSessionManager
from fumehood_server.mcp.http_settings import PATH, HttpSettings
from fumehood_server.mcp.sidecar_link import SidecarLink
from fumehood_server.mcp.tool_choice import ToolChoice

_ENDPOINT = PATH.encode()
_METADATA_PATHS = frozenset({METADATA_PATH.encode(), f"{METADATA_PATH}{PATH}".encode()})


@contextlib.asynccontextmanager
async def mcp_app(settings: HttpSettings, link: SidecarLink) -> AsyncIterator[ASGIApp]:
    """The application, which serves within the block."""
    door = McpDoor(link, ToolChoice(), _caller_of, max_requests=settings.max_requests)
    manager = SharedSessionManager(
        door.server,
        max_request_body_size=settings.max_body_bytes,
        session_idle_timeout=settings.session_idle_s,
        max_sessions=settings.max_sessions,
    )
    endpoint: ASGIApp = StreamableHTTPASGIApp(manager)
    endpoint = RequestBounds(endpoint, max_requests=settings.max_requests)
    endpoint = BearerAuthentication(endpoint, link, allow_anonymous=settings.allow_anonymous)
    app: ASGIApp = _Paths(endpoint, settings.authorization_servers)
    if settings.allowed_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate"],
        )
    guarded = HostAndOriginGuard(
        app, hosts=settings.allowed_hosts, origins=settings.allowed_origins, is_local=settings.is_local
    )
    async with door.running(), manager.run():
        yield guarded


class _Paths:
    """Leads a request to what answers it, by its path as it was written: what stands before may judge by that."""

    def __init__(self, endpoint: ASGIApp, authorization_servers: Sequence[str]) -> None:
        self._endpoint = endpoint
        self._authorization_servers = authorization_servers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"]
        if path == _ENDPOINT:
            await self._endpoint(scope, receive, send)
        elif path in _METADATA_PATHS and scope["method"] in {"GET", "HEAD"}:
            await JSONResponse(resource_metadata(scope, self._authorization_servers))(scope, receive, send)
        else:
            await PlainTextResponse(f"the MCP endpoint is {PATH}\n", 404)(scope, receive, send)


def _caller_of(context: ServerRequestContext[Any, Any]) -> McpCaller:
    """Whoever sent the HTTP request that the MCP request came in."""
    assert context.request is not None  # noqa: S101 - every message comes in one
    caller: McpCaller = context.request.scope[CALLER]
    return caller
