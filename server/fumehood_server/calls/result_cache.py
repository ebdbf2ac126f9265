"""A cache of results, least recently used first out (LRU), for tools whose operator asked for it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.check import Checked
from fumehood_server.model.call import CachedFrom, CallRequest
from fumehood_server.model.plugin import RegisteredTool

MAX_RESULTS = 1024
MAX_BYTES = 32 * 1024 * 1024
MAX_RESULT_BYTES = 1024 * 1024
"""Of one. Larger ones are not kept."""

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Kept:
    tool: RegisteredTool
    """As it was registered then: each reload registers it anew, with its definition, files and grants."""
    call_id: str
    caller: str
    checked: Checked
    size: int
    at: float


class ResultCache:
    """Results by tool, canonical arguments and caller. Bounded by count and bytes. For one event loop.

    Failures are not kept, nor what an approver let run: an approval is for one call. A replay never looks here.
    """

    __slots__ = ("_bytes", "_clock", "_kept")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Empty."""
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._bytes = 0
        self._clock = clock

    def find(self, request: CallRequest, progress: Progress) -> Checked | None:
        """The result of an equal call, which the progress then names. None: there is none that is young enough."""
        tool = progress.tool
        if tool is None or not tool.cache_s:
            return None
        key = _key(tool, request, progress)
        found = self._kept.get(key)
        if found is None:
            return None
        age_s = self._clock() - found.at
        if found.tool is not tool or age_s >= tool.cache_s:
            self._remove(key)
            return None
        self._kept.move_to_end(key)
        # Who knows a call's id may ask for that call.
        is_own = found.caller == request.identity.recorded
        progress.cached = CachedFrom(call_id=found.call_id if is_own else "", age_s=age_s)
        return found.checked

    def keep(self, request: CallRequest, progress: Progress, checked: Checked) -> None:
        """Keep a result, where its tool's are kept."""
        tool = progress.tool
        if tool is None or not tool.cache_s or checked.error is not None or progress.in_doubt is not None:
            return
        size = len(checked.details_json) + sum(each.length for each in checked.content)
        if size > MAX_RESULT_BYTES:
            return
        key = _key(tool, request, progress)
        self._remove(key)
        self._kept[key] = _Kept(tool, request.call_id, request.identity.recorded, checked, size, self._clock())
        self._bytes += size
        while len(self._kept) > MAX_RESULTS or self._bytes > MAX_BYTES:
            self._remove(next(iter(self._kept)))

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def _remove(self, key: _Key) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= found.size


def _key(tool: RegisteredTool, request: CallRequest, progress: Progress) -> _Key:
    caller = request.identity
    # Callers without names are told apart by how they came, and not among themselves, as everywhere.
    whose = "" if tool.cache_shared else caller.name or f":{caller.authenticated_by.value}"
    return tool.name, progress.arguments_hash, whose
