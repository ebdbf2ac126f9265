"""What plugins say, kept in bounded memory: the last lines of each, and whoever listens for new ones."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import orjson

from fumehood_server.model.text import escape_line
from fumehood_server.secrets import Redactor
from fumehood_server.workers.wire.messages import MAX_LINE_BYTES, cut

MAX_LINES = 1000
"""Lines kept of each plugin: as many as `TailPluginLogs` may ask for, and as a listener may be behind."""

MAX_KEPT_BYTES = 1024 * 1024
"""Text kept of each plugin. A hundred plugins that fill it take 100 MiB."""

LAST_LINES = 20
"""Lines of a worker's stderr that an error about it carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line. Its text has at most 8 KiB and no control characters."""

    time: float
    """When the sidecar read it, in Unix seconds."""
    source: str
    """"stderr", "log" or "sidecar"."""
    level: str
    """"debug", "info", "warning" or "error"."""
    message: str
    worker_id: str = ""
    call_id: str = ""
    dropped: int = 0
    """Lines dropped just before this one."""
    fields_json: str = ""


def clean(text: str) -> str:
    """The text as a line that is safe to show: controls escaped, at most 8 KiB."""
    text = cut(text, MAX_LINE_BYTES)
    if text.isprintable():
        return text
    return cut(escape_line(text), MAX_LINE_BYTES)


def json_or_nothing(before: str, found: str) -> str:
    """JSON that secrets were taken out of. Empty where it is none any more, as a secret lay across its own signs."""
    if found is before or not found:
        return found
    try:
        orjson.loads(found)
    except orjson.JSONDecodeError:
        return ""
    return found


class LogSubscription:
    """A place in the lines of one plugin, for one listener. It holds none of them, and never holds up the plugin.

    Lines that the log forgets before they are taken are dropped and counted.
    """

    __slots__ = ("_dropped", "_log", "_next")

    def __init__(self, log: PluginLog) -> None:
        self._log = log
        self._next = log.written
        self._dropped = log.written_and_dropped
        """Lines before the next one, with those that were dropped before them."""

    def __aiter__(self) -> AsyncIterator[LogLine]:
        return self

    async def __anext__(self) -> LogLine:
        """Wait for the next line. It ends by cancellation alone."""
        log = self._log
        while self._next == log.written:
            await log.wait_for_line()
        missed = 0
        if self._next < log.forgotten:
            self._next, missed = log.forgotten, log.forgotten_and_dropped - self._dropped
            self._dropped = log.forgotten_and_dropped
        line = log.line(self._next)
        self._next += 1
        self._dropped += 1 + line.dropped
        return replace(line, dropped=line.dropped + missed) if missed else line


class PluginLog:
    """The log of one plugin, over all its workers."""

    def __init__(self, plugin: str, forward: Callable[[str, LogLine], None] | None) -> None:
        """`forward` is told every line as well, with the plugin's name."""
        self._plugin = plugin
        self._forward = forward
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._arrived: asyncio.Future[None] | None = None
        """What listeners wait for: one for all."""
        self.forgotten = self.forgotten_and_dropped = 0
        """Lines that are no longer kept; the same with those that were dropped before them."""
        self.written_and_dropped = 0
        self.redactor = Redactor()
        """Takes out of the plugin's words the secrets that it was handed. Every line here has gone through it."""

    def write(
        self,
        source: str,
        level: str,
        message: str,
        *,
        worker_id: str = "",
        call_id: str = "",
        dropped: int = 0,
        fields_json: str = "",
        forward: bool = True,
    ) -> None:
        """Keep one line and hand it on. Never blocks. Without `forward` the sidecar's own log says it already."""
        if self.redactor.active:
            # What lies across the cut is taken out before it is cut. The end may be the beginning of a secret.
            longest = self.redactor.longest_bytes
            begun = message[: MAX_LINE_BYTES + longest]
            shown = self.redactor.text(begun)
            message = shown if len(begun) == len(message) else shown[: max(0, len(shown) - longest)]
            fields_json = json_or_nothing(fields_json, self.redactor.text(fields_json))
        line = LogLine(
            time=time.time(),
            source=source,
            level=level,
            message=clean(message),
            worker_id=worker_id,
            call_id=call_id,
            dropped=dropped,
            fields_json=fields_json,
        )
        self._lines.append(line)
        self._bytes += _size(line)
        self.written_and_dropped += 1 + dropped
        while len(self._lines) > MAX_LINES or self._bytes > MAX_KEPT_BYTES:
            oldest = self._lines.popleft()
            self._bytes -= _size(oldest)
            self.forgotten += 1
            self.forgotten_and_dropped += 1 + oldest.dropped
        if self._arrived is not None:
            if not self._arrived.done():
                self._arrived.set_result(None)
            self._arrived = None
        if forward and self._forward is not None:
            self._forward(self._plugin, line)

    def problem(self, message: str) -> None:
        """Say why no worker can be had, unless a worker's own last error says it: the first line of `message`."""
        text = _headline(message)
        if self.redactor.active:
            text = self.redactor.text(text)
        text = clean(text)
        errors = (line for line in reversed(self._lines) if line.source == "sidecar" and line.level == "error")
        last = next(errors, None)
        if last is None or not last.worker_id or _headline(last.message) != text:
            self.write("sidecar", "error", text)

    def last(self, count: int) -> tuple[LogLine, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)[-count:] if count > 0 else ()

    def last_words(self, worker_id: str) -> tuple[str, ...]:
        """The last lines that one worker wrote to stderr, oldest first."""
        found: list[str] = []
        for line in reversed(self._lines):
            if line.worker_id == worker_id and line.source == "stderr":
                found.append(line.message)
                if len(found) == LAST_LINES:
                    break
        return tuple(reversed(found))

    @property
    def written(self) -> int:
        """Lines so far, forgotten or not."""
        return self.forgotten + len(self._lines)

    def line(self, number: int) -> LogLine:
        """The line before which so many were written. It must be kept."""
        return self._lines[number - self.forgotten]

    async def wait_for_line(self) -> None:
        """Return once another line was written."""
        if self._arrived is None:
            self._arrived = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._arrived)

    def subscribe(self) -> LogSubscription:
        """The lines from now on."""
        return LogSubscription(self)


class LogSink:
    """The logs of all plugins, by name."""

    def __init__(self, forward: Callable[[str, LogLine], None] | None = None) -> None:
        """`forward(plugin, line)` is told every line of every plugin. It must not block."""
        self._forward = forward
        self._plugins: dict[str, PluginLog] = {}

    def of(self, plugin: str) -> PluginLog:
        """The log of one plugin. It is made when it is first asked for."""
        log = self._plugins.get(plugin)
        if log is None:
            log = self._plugins[plugin] = PluginLog(plugin, self._forward)
        return log

    def dropped(self) -> dict[str, int]:
        """Lines of each plugin that it lost to its bound on log bytes."""
        return {name: log.written_and_dropped - log.written for name, log in self._plugins.items()}


def _headline(message: str) -> str:
    """What happened. The lines that a message quotes are in the log already."""
    return message.split("\n", 1)[0].removesuffix(". Its last lines:")


def _size(line: LogLine) -> int:
    return len(line.message) + len(line.fields_json)
