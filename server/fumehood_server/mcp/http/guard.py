"""Checks `Host` and `Origin` of each request: DNS rebinding, and pages of other origins (Fetch, RFC 6454)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_INVALID, _MISDIRECTED, _FORBIDDEN = 400, 421, 403

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]*)?")
"""RFC 9110, 7.2. It is given back as part of a URL."""

_SINGLE = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"content-type"),
        *(b"mcp-session-id", b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"last-event-id"),
    )
)
"""Headers of which there is one at most: of two, what stands before may judge by the other one."""


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
        single = [(name, value) for name, value in scope["headers"] if name in _SINGLE]
        given = dict(single)
        host, origin = (given.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        if len(given) < len(single):
            refusal = PlainTextResponse("a header that may stand once stands twice\n", _INVALID)
        elif not _HOST.fullmatch(host) or (self._hosts and _name(host) not in self._hosts):
            refusal = PlainTextResponse("this server has another name: see allowed_hosts in [mcp]\n", _MISDIRECTED)
        elif b"origin" in given and origin not in self._origins:
            refusal = PlainTextResponse("pages of this origin may not call: see allowed_origins in [mcp]\n", _FORBIDDEN)
        else:
            await self._app(scope, receive, send)
            return
        await refusal(scope, receive, send)


def _name(host: str) -> str:
    """A host without its port."""
    return (host if host.endswith("]") else host.rpartition(":")[0] or host).lower()
