"""Bound of requests under way, streams included, with room kept for other callers."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood_server.mcp.http.bearer import CALLER
from fumehood_server.mcp.places import NoPlaceError, Places


class RequestBounds:
    """Refuses requests above the bound."""

    def __init__(self, app: ASGIApp, *, max_requests: int) -> None:
        """`max_requests` counts streams as well, which stay open."""
        self._app = app
        self._places = Places(max_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            with self._places.taken(scope[CALLER].share):
                try:
                    await self._app(scope, receive, send)
                except ClientDisconnect:  # before its body was there
                    return
        except NoPlaceError:
            body = {"error": "TOO_MANY_REQUESTS", "message": "too many requests and streams are open: close one"}
            await JSONResponse(body, 503, {"Retry-After": "1"})(scope, receive, send)
