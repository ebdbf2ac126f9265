"""Remembers the ids of calls that wait for an approval, so that the same call comes back under the same id."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict

from fumehood_server.mcp.callers import McpCaller

MAX_OPEN = 4096
"""The oldest is forgotten: its call then asks for another approval."""

KEPT_S = 3_600.0

Key = str


class OpenCalls:
    """Calls that were answered with an approval's id. A model can repeat a call, and not name one."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        """None is open."""
        self._ids: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    @staticmethod
    def key(caller: McpCaller, tool: str, arguments_json: str) -> Key:
        """Names a call by what it is."""
        return hashlib.sha256(f"{caller.identity}\n{tool}\n{arguments_json}".encode()).hexdigest()

    def find(self, key: Key) -> str:
        """The id under which it waits. Empty: it does not."""
        call_id, until = self._ids.get(key, ("", 0.0))
        return call_id if time.monotonic() < until else ""

    def keep(self, key: Key, call_id: str) -> None:
        """It waits under this id."""
        self._ids[key] = (call_id, time.monotonic() + KEPT_S)
        self._ids.move_to_end(key)
        if len(self._ids) > MAX_OPEN:
            self._ids.popitem(last=False)

    def forget(self, key: Key) -> None:
        """It has its outcome."""
        self._ids.pop(key, None)
