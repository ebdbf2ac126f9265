"""Log lines about an MCP server and from it, as frames, up to a rate."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from fumehood_sdk.call import MAX_LINE_BYTES
from fumehood_sdk.wire import plugin_frames

LINES_PER_SECOND = 100
_LEVELS = {"debug": plugin_frames.DEBUG, "info": plugin_frames.INFO, "notice": plugin_frames.INFO}
_WARNING_LEVELS = {"warning": plugin_frames.WARNING}


class LogLines:
    """Lines that wait to be written. Those above the rate are counted and dropped."""

    __slots__ = ("_dropped", "_frames", "_left", "_second")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._second = 0
        self._left = LINES_PER_SECOND
        self._dropped = 0

    def warn(self, text: str) -> None:
        """Add a line of our own."""
        self._add(plugin_frames.WARNING, text)

    def write_message(self, params: Mapping[str, Any]) -> None:
        """Add what a server says by `notifications/message`."""
        if not self._may_add():
            return
        data = params.get("data")
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        word = str(params.get("level"))
        level = _LEVELS.get(word) or _WARNING_LEVELS.get(word, plugin_frames.ERROR)
        self._append(level, text)

    def take_frames(self) -> list[bytes]:
        """The lines so far, as frames."""
        frames = self._frames
        if frames:
            self._frames = []
        return frames

    def _add(self, level: int, text: str) -> None:
        if self._may_add():
            self._append(level, text)

    def _may_add(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, LINES_PER_SECOND
            if self._dropped:
                self._append(plugin_frames.WARNING, f"{self._dropped} lines of the MCP server were dropped")
                self._dropped = 0
        self._left -= 1
        if self._left < 0:
            self._dropped += 1
        return self._left >= 0

    def _append(self, level: int, text: str) -> None:
        cut = text.encode("utf-8", "replace")[:MAX_LINE_BYTES].decode("utf-8", "ignore")
        body = plugin_frames.encode_log(0, level, cut, b"")
        self._frames.append(plugin_frames.delimited_frame(plugin_frames.LOG, body))
