"""Reads a worker's stderr: free text by a stranger, cut into log lines at a bounded rate."""

from __future__ import annotations

from collections.abc import Callable

from fumehood_server.token_bucket import TokenBucket
from fumehood_server.workers.output.log_rate import LogRate
from fumehood_server.workers.output.logs import PluginLog
from fumehood_server.workers.wire.messages import MAX_LINE_BYTES
from fumehood_server.workers.wire.pipes import PipeReader
from fumehood_server.workers.wire.portions import portions

LINES_BURST = 2000
"""Lines that a worker may log at once: several long tracebacks."""

LINES_PER_SECOND = 200.0
"""Lines that it may log over time. Over that, lines are counted and dropped: a plugin is never held up by its log."""

LINES_AT_ONCE = 4
"""Lines of one read that are logged at once. It can hold thousands: the rest waits for its turns."""

LINES_AT_STOP = 200
"""Last lines that are logged, in one go, when a reader is stopped before their turn has come. Others are counted."""

_CUT = " … (cut)"


class StderrLines:
    """Cuts what a worker writes to stderr into lines of its plugin's log."""

    __slots__ = ("_bucket", "_dropped", "_log", "_overlong", "_partial", "_rate", "_worker_id")

    def __init__(self, log: PluginLog, worker_id: str, bucket: TokenBucket, rate: LogRate) -> None:
        """`bucket` and `rate` are shared with the worker's other ways to log."""
        self._rate = rate
        self._log = log
        self._worker_id = worker_id
        self._bucket = bucket
        self._partial = bytearray()
        self._overlong = False
        self._dropped = 0

    def count(self, data: bytes) -> None:
        """Count what was read towards the rate."""
        self._rate.count(len(data))

    def take_lines(self, data: bytes, start: int, limit: int) -> int:
        """Take what was read from `start` on, up to the end of `limit` lines. Returns where it has stopped."""
        while (end := data.find(b"\n", start)) >= 0:
            if not limit:
                return start
            limit -= 1
            if not self._bucket.take():
                # Counting is twenty times as cheap as cutting, which is what keeps a flood from costing anything.
                self._dropped += data.count(b"\n", start)
                self._partial.clear()
                self._overlong = False
                start = data.rfind(b"\n") + 1
                break
            self._keep(data, start, end)
            self._write()
            start = end + 1
        self._keep(data, start, len(data))
        return len(data)

    def skip_to_last(self, data: bytes, start: int, limit: int) -> int:
        """Drop what was read from `start` on, but for the last `limit` lines. Returns where those begin."""
        end = len(data)
        for _ in range(limit + 1):
            end = data.rfind(b"\n", start, end)
            if end < 0:
                return start
        self._dropped += data.count(b"\n", start, end + 1)
        self._partial.clear()
        self._overlong = False
        return end + 1

    def close(self) -> None:
        """The stream has ended: log what has no end of line, and how much was dropped."""
        if self._partial:
            self._write()
        if self._dropped:
            self._log.write(
                "sidecar",
                "warning",
                f"{self._dropped} lines of stderr were dropped",
                worker_id=self._worker_id,
                dropped=self._dropped,
            )
            self._dropped = 0

    def _keep(self, data: bytes, start: int, end: int) -> None:
        if self._overlong:
            return
        # What lies across the cut is taken out before it is cut.
        room = max(0, MAX_LINE_BYTES + self._log.redactor.longest_bytes - len(self._partial))
        if end - start > room:
            self._overlong = True
            end = start + room
        self._partial += data[start:end]

    def _write(self) -> None:
        redactor = self._log.redactor
        data = bytes(self._partial)
        if redactor.active:
            data = redactor.data(data)
            if self._overlong:  # the end may be the beginning of a secret
                data = data[: max(0, len(data) - redactor.longest_bytes)]
        text = data.decode("utf-8", "backslashreplace").removesuffix("\r")
        if self._overlong or len(data) > MAX_LINE_BYTES:
            text = text[: MAX_LINE_BYTES - len(_CUT.encode())] + _CUT
        self._log.write("stderr", "info", text, worker_id=self._worker_id, dropped=self._dropped)
        self._dropped = 0
        self._partial.clear()
        self._overlong = False


class StderrReader(PipeReader):
    """Reads the stderr of one process into lines of its plugin's log."""

    def __init__(self, fd: int, lines: StderrLines, on_end: Callable[[], None]) -> None:
        """`on_end` is told that the pipe was closed. Call `resume` to begin."""
        super().__init__(fd)
        self._lines = lines
        self._on_end = on_end
        self._data = b""
        self._taken = 0
        self._turns = portions()

    def take_data(self, data: bytes) -> None:
        """See `PipeReader`."""
        self._lines.count(data)
        self._data, self._taken = data, 0
        if self._hand_on(LINES_AT_ONCE) and not self.ended:
            self.pause()
            self._turns.add(self._take_turn)

    def stop(self) -> None:
        """Log the last lines of what was read; see `PipeReader.stop`."""
        super().stop()
        self._taken = self._lines.skip_to_last(self._data, self._taken, LINES_AT_STOP)
        self._hand_on(LINES_AT_STOP)

    def _hand_on(self, limit: int) -> bool:
        """Log so many lines. Returns whether there are more."""
        self._taken = self._lines.take_lines(self._data, self._taken, limit)
        if self._taken < len(self._data):
            return True
        self._data, self._taken = b"", 0
        return False

    def _take_turn(self) -> bool:
        if self.ended:
            return False
        more = self._hand_on(1)
        if not more:
            self.resume()
        return more

    def take_end(self) -> None:
        """See `PipeReader`."""
        self._on_end()
