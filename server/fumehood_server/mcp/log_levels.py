"""Which log messages a client wants: by `logging/setLevel` through 2025-11-25, by each request's `_meta` since."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, get_args

from mcp.server.context import ServerRequestContext
from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_ORDER: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
_MAX_SESSIONS = 10_000


class LogLevels:
    """The level of each session that has set one."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        """None has."""
        self._levels: OrderedDict[str, LoggingLevel] = OrderedDict()

    def set(self, context: ServerRequestContext[Any, Any], level: LoggingLevel) -> None:
        """The session of this request wants this level and graver ones from now on."""
        session = session_id(context)
        self._levels[session] = level
        self._levels.move_to_end(session)
        if len(self._levels) > _MAX_SESSIONS:
            self._levels.popitem(last=False)

    def forget(self, session: str) -> None:
        """It has ended."""
        self._levels.pop(session, None)

    def wants(self, context: ServerRequestContext[Any, Any], level: LoggingLevel) -> bool:
        """Whether the client of this request takes messages of a level: without a word of its own, none."""
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            lowest = ((context.params or {}).get("_meta") or {}).get(LOG_LEVEL_META_KEY)
        else:
            lowest = self._levels.get(session_id(context))
        return lowest in _ORDER and _ORDER.index(level) >= _ORDER.index(lowest)


def session_id(context: ServerRequestContext[Any, Any]) -> str:
    """Names the session of a request: empty over stdio, which has one, and where the protocol has none."""
    if context.request is None or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return ""
    found: str = context.request.headers.get("mcp-session-id", "")
    return found
