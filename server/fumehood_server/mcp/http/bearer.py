"""Bearer tokens (RFC 6750): each request's own token is the sidecar's to judge, and is passed on with every call.

Requests without one are refused with where to learn more (RFC 9728): OAuth's metadata of a protected resource.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.http_settings import PATH
from fumehood_server.mcp.sidecar_link import SidecarLink, SidecarRefusedError

METADATA_PATH = "/.well-known/oauth-protected-resource"
CALLER = "fumehood.caller"
"""Key of the ASGI scope that holds the request's `McpCaller`."""

KNOWN_S = 5.0
"""How long a token that the sidecar knew is not asked about again. Each call is judged anew, whatever this says."""

_MAX_KNOWN = 4096
_MAX_TOKEN_CHARS = 4096


class BearerAuthentication:
    """Puts the caller into the scope, or answers 401."""

    def __init__(self, app: ASGIApp, link: SidecarLink, *, allow_anonymous: bool) -> None:
        """`allow_anonymous`: whether a request without a token is passed on, for the sidecar to judge."""
        self._app = app
        self._link = link
        self._allow_anonymous = allow_anonymous
        self._known: OrderedDict[str, float] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        caller, refusal = await self._authenticate(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if caller.token:
            # What the SDK ties a session to: another token can't use it.
            token = AccessToken(token="", client_id=caller.identity, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        scope[CALLER] = caller
        await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> tuple[McpCaller, Response | None]:
        given = Headers(scope=scope).getlist("authorization")
        host, port = scope.get("client") or ("", 0)
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if not given:
            anonymous = McpCaller(client=client)
            return anonymous, None if self._allow_anonymous else _refusal(
                scope, "", "send `Authorization: Bearer TOKEN`"
            )
        scheme, _, token = given[0].partition(" ")
        token = token.strip()
        is_token = scheme.lower() == "bearer" and 0 < len(token) <= _MAX_TOKEN_CHARS and token.isascii()
        if len(given) > 1 or not (is_token and token.isprintable()):
            return McpCaller(), _refusal(scope, "invalid_request", "one `Authorization: Bearer TOKEN` is wanted")
        caller = McpCaller(token, client)
        return caller, await self._problem(caller, scope)

    async def _problem(self, caller: McpCaller, scope: Scope) -> Response | None:
        now, identity = asyncio.get_running_loop().time(), caller.identity
        if self._known.get(identity, 0.0) > now:
            return None
        try:
            await self._link.check(caller)
        except SidecarRefusedError as error:
            if error.reason == "UNAUTHENTICATED":
                self._known.pop(identity, None)
                return _refusal(scope, "invalid_token", error.message)
            return JSONResponse({"error": error.reason, "message": error.message}, 503, {"Retry-After": "1"})
        self._known[identity] = now + KNOWN_S
        self._known.move_to_end(identity)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return None


def resource_metadata(scope: Scope, authorization_servers: Sequence[str]) -> dict[str, Any]:
    """OAuth 2.0 Protected Resource Metadata (RFC 9728), which leaves out a list that is empty (section 3.2).

    No server issues tokens here: `authorization_servers` are the operator's word for where clients get them.
    """
    return {
        "resource": f"{_origin(scope)}{PATH}",
        **({"authorization_servers": list(authorization_servers)} if authorization_servers else {}),
        "resource_name": "Fumehood",
        "bearer_methods_supported": ["header"],
    }


def _refusal(scope: Scope, error: str, description: str) -> Response:
    words = [f'error="{error}"', f'error_description="{description.replace(chr(34), chr(39))}"'] if error else []
    words.append(f'resource_metadata="{_origin(scope)}{METADATA_PATH}{PATH}"')
    body = {"error": error or "invalid_request", "error_description": description}
    return JSONResponse(
        body, 400 if error == "invalid_request" else 401, {"WWW-Authenticate": f"Bearer {', '.join(words)}"}
    )


def _origin(scope: Scope) -> str:
    return f"{scope['scheme']}://{Headers(scope=scope)['host']}"
