"""The calls that a run's response lists, within bounds that they have together: a gRPC client takes 4 MiB."""

from __future__ import annotations

from dataclasses import replace

from fumehood_server.model.call import CallError
from fumehood_server.orchestration.happenings import SHOWN_CHARS
from fumehood_server.orchestration.response import ToolCallMade
from fumehood_server.orchestration.shown_errors import cut_error, cut_text, weight

MAX_CALLS_BYTES = 896 * 1024
"""Of all that is said of them. Those beyond it are not listed, and only counted."""
MAX_ARGUMENTS_BYTES = 448 * 1024
MAX_ERRORS_BYTES = 192 * 1024
_CALL_BYTES = 96
"""What each has beside its names: numbers of fields, the code of its failure, and the word where to read more."""
_ELSEWHERE = "(see GetCall)"


class MadeCalls:
    """Calls in the order in which they were asked for. The journal has each of them whole."""

    __slots__ = ("_arguments_bytes", "_errors_bytes", "_is_full", "_listed", "_names_bytes", "count")

    def __init__(self) -> None:
        """Nothing was called."""
        self.count = 0
        """Those that are not listed too."""
        self._listed: list[ToolCallMade] = []
        self._names_bytes = self._arguments_bytes = self._errors_bytes = 0
        self._is_full = False
        """Whether there was no room for a failure: nothing more is said of any but its code."""

    @property
    def listed(self) -> tuple[ToolCallMade, ...]:
        """As the response has them."""
        return tuple(self._listed)

    def add(self, *, call_id: str, tool: str, tool_use_id: str, arguments_json: str) -> int:
        """Note a call that is about to be made. Returns by which number `fail` knows it."""
        number = self.count
        self.count += 1
        names = _CALL_BYTES + sum(len(each.encode(errors="replace")) for each in (call_id, tool, tool_use_id))
        used = self._names_bytes + self._arguments_bytes + MAX_ERRORS_BYTES
        if number == len(self._listed) and used + names <= MAX_CALLS_BYTES:
            most = min(SHOWN_CHARS, MAX_ARGUMENTS_BYTES - self._arguments_bytes, MAX_CALLS_BYTES - used - names)
            shown = cut_text(arguments_json, most)
            self._names_bytes += names
            self._arguments_bytes += len(shown.encode(errors="replace"))
            self._listed.append(ToolCallMade(call_id=call_id, tool=tool, tool_use_id=tool_use_id, arguments_json=shown))
        return number

    def fail(self, number: int, error: CallError) -> None:
        """Say once why one failed."""
        if number >= len(self._listed):
            return
        shown = None if self._is_full else self._within_bounds(error)
        if shown is None:
            self._is_full = True
            shown = CallError(code=error.code, message=_ELSEWHERE, retryable=error.retryable)
        self._listed[number] = replace(self._listed[number], error=shown)

    def _within_bounds(self, error: CallError) -> CallError | None:
        """As much of it as there is room for. None: there is none."""
        shown = cut_error(error)
        for each in (shown, cut_error(shown, 0)):
            size = weight(each)
            if self._errors_bytes + size <= MAX_ERRORS_BYTES:
                self._errors_bytes += size
                return each
        return None
