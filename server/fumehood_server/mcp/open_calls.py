"""Remembers the ids of calls that wait for an approval, so that the same call comes back under the same id."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict

from fumehood_server.mcp.callers import McpCaller

MAX_OPEN = 512
"""Of one caller. The oldest is forgotten: its call then asks for another approval."""

MAX_CALLERS = 1024
"""With open calls. Those of whoever had none for the longest time are forgotten."""

KEPT_S = 3_600.0


class OpenCalls:
    """Calls that were answered with an approval's id. A model can repeat a call, and not name one."""

    __slots__ = ("_callers",)

    def __init__(self) -> None:
        """None is open."""
        self._callers: OrderedDict[str, OrderedDict[str, tuple[str, float]]] = OrderedDict()

    @staticmethod
    def key(tool: str, arguments_json: str) -> str:
        """Names a call of a caller by what it is."""
        return hashlib.sha256(f"{tool}\n{arguments_json}".encode()).hexdigest()

    def find(self, caller: McpCaller, key: str) -> str:
        """The id under which it waits. Empty: it does not."""
        calls = self._callers.get(caller.identity)
        call_id, until = calls.get(key, ("", 0.0)) if calls is not None else ("", 0.0)
        return call_id if time.monotonic() < until else ""

    def keep(self, caller: McpCaller, key: str, call_id: str) -> None:
        """It waits under this id."""
        calls = self._callers.setdefault(caller.identity, OrderedDict())
        self._callers.move_to_end(caller.identity)
        calls[key] = (call_id, time.monotonic() + KEPT_S)
        calls.move_to_end(key)
        if len(calls) > MAX_OPEN:
            calls.popitem(last=False)
        if len(self._callers) > MAX_CALLERS:
            self._callers.popitem(last=False)

    def forget(self, caller: McpCaller, key: str) -> None:
        """It has its outcome."""
        calls = self._callers.get(caller.identity)
        if calls is not None and calls.pop(key, None) is not None and not calls:
            del self._callers[caller.identity]
