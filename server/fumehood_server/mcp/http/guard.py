"""Checks `Host` and `Origin` of each request: DNS rebinding, and pages of other origins (Fetch, RFC 6454)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MISDIRECTED, _FORBIDDEN = 421, 403


class HostAndOriginGuard:
    """Refuses a request for a name that isn't this server's, or from a page that the operator didn't name.

    A page of the web can have its own name lead to 127.0.0.1, and its scripts then speak to whatever listens there as
    if it were of its origin. The name stands in `Host`. A request of a program has no `Origin`.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str], origins: Sequence[str], is_local: bool) -> None:
        """`hosts` are names without a port. None of them, away from loopback: any, since TLS vouches for the name."""
        self._app = app
        self._hosts = frozenset(each.lower() for each in hosts) | (_LOOPBACK_NAMES if is_local else frozenset())
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or (self._hosts and _name(hosts[0]) not in self._hosts):
            refusal = PlainTextResponse("this server has another name: see allowed_hosts in [mcp]\n", _MISDIRECTED)
        elif len(origins) > 1 or (origins and origins[0] not in self._origins):
            refusal = PlainTextResponse("pages of this origin may not call: see allowed_origins in [mcp]\n", _FORBIDDEN)
        else:
            await self._app(scope, receive, send)
            return
        await refusal(scope, receive, send)


def _name(host: str) -> str:
    """The host without its port (RFC 9110, 7.2)."""
    name, colon, port = host.rpartition(":")
    return (name if colon and (port.isdecimal() or not port) and not name.endswith(":") else host).lower()
