"""Polls what the sidecar offers to each caller that wants to hear of changes, and tells of them (`list_changed`)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.sidecar_link import SidecarRefusedError
from fumehood_server.mcp.tool_list import ToolList

POLL_S = 1.0
"""Between two rounds. A round asks once for each caller that listens, one after the other."""

GAP_S = 0.05
"""Between two callers of a round, so that a thousand of them don't keep the sidecar busy."""

Listener = Callable[[], None]
"""Told that the tools have changed. It must not block."""


@dataclass(slots=True)
class _Watched:
    caller: McpCaller
    listeners: set[Listener] = field(default_factory=set)
    digest: str = ""
    """Of what the last round found. Empty: it has found nothing yet."""


class ToolChanges:
    """Who listens, and for which caller. Its `run` polls. For one event loop."""

    __slots__ = ("_anybody", "_tools", "_watched")

    def __init__(self, tools: ToolList) -> None:
        """Nobody listens yet."""
        self._tools = tools
        self._watched: dict[str, _Watched] = {}
        self._anybody = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self, caller: McpCaller, listener: Listener) -> AsyncIterator[None]:
        """Have the listener told of each change of the caller's tools within the block."""
        watched = self._watched.setdefault(caller.identity, _Watched(caller))
        watched.listeners.add(listener)  # before any wait: whom nobody listens to is forgotten when another one leaves
        try:
            if not watched.digest:
                await self._look(watched)
            self._anybody.set()
            yield
        finally:
            watched.listeners.discard(listener)
            if not watched.listeners and self._watched.get(caller.identity) is watched:
                del self._watched[caller.identity]

    async def run(self) -> None:
        """Poll as long as somebody listens, until this is cancelled."""
        while True:
            if not self._watched:
                self._anybody.clear()
                await self._anybody.wait()
            await asyncio.sleep(POLL_S)
            for each in list(self._watched.values()):
                if await self._look(each):
                    for listener in list(each.listeners):
                        listener()
                await asyncio.sleep(GAP_S)

    async def _look(self, watched: _Watched) -> bool:
        """Whether the caller's tools differ from those of the last look. A sidecar that can't be asked changes none."""
        digest, cursor = hashlib.sha256(), ""
        try:
            while True:
                tools, cursor = await self._tools.page(cursor, watched.caller)
                digest.update(json.dumps(tools).encode())
                if not cursor:
                    break
        except SidecarRefusedError:
            return False
        before, watched.digest = watched.digest, digest.hexdigest()
        return bool(before) and before != watched.digest
