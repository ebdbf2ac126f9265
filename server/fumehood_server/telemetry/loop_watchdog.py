"""A watchdog of the event loop: a thread that samples what the loop's thread runs, and measures how long it is held up.

The loop has no hook at which a step begins or ends, and a timer on it would wake one that has nothing to do. So the
thread looks at the stack of the loop's thread: while that is in a callback, it asks the loop to call back, and the time
until it does is how long the loop was held up, by one step or by all that were ready. Native code that keeps the
interpreter's lock (GIL) holds up this thread as well, which is then late by as much. It may be another thread that has
kept it, so what the others run is told too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import FrameType

SAMPLE_S = 0.02
NOTED_S = 0.02
"""The longest that anything may take the loop: what takes longer counts."""

LOGGED_S = 0.1
"""What takes longer is logged with its culprit."""

LOG_INTERVAL_S = 10.0
"""At least so long between two lines."""

REPORT_INTERVAL_S = 60.0
"""A period in which the loop was held up is reported at its end."""

_FRAMES = 5
_OTHER_THREADS = 3
"""That are named beside the loop's."""
_OTHER_FRAMES = 3
_NAME_CHARS = 40
_FUNCTION_CHARS = 80
_FILE_CHARS = 120
_WAITING = ("/concurrent/futures/thread.py", "/queue.py", "/selectors.py", "/threading.py")
"""Files whose functions are innermost while a thread has nothing to do."""
_IDLE = ("/runners.py", "/selectors.py", "/base_events.py")
"""Files of asyncio whose functions are innermost while a loop waits. uvloop has no Python frame of its own."""


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """How the loop was held up in some time. For the log, and for whatever exports metrics."""

    longest_s: float = 0.0
    culprit: str = ""
    """What ran then, innermost first."""
    over_20_ms: int = 0
    over_100_ms: int = 0

    def with_one(self, held_up_s: float, culprit: str) -> LoopFigures:
        """These, and one time more."""
        longest_s, of = max((self.longest_s, self.culprit), (held_up_s, culprit))
        return LoopFigures(longest_s, of, self.over_20_ms + 1, self.over_100_ms + (held_up_s > LOGGED_S))


class LoopWatchdog:
    """Watches one loop from a thread. `figures` may be read by any thread."""

    __slots__ = (
        *("_ended", "_log", "_logged_at", "_loop", "_period", "_period_ends", "_report", "_report_interval_s"),
        *("_schedstats", "_thread", "_watched", "figures"),
    )

    def __init__(
        self,
        log: Callable[[float, str, int], None],
        report: Callable[[LoopFigures], None],
        *,
        report_interval_s: float = REPORT_INTERVAL_S,
    ) -> None:
        """For the running loop, on whose thread this is made.

        `log(seconds, culprit, over_100_ms)` and `report(figures)`, those of one period, are called on the loop.
        """
        self.figures = LoopFigures()
        """Since it is watched."""
        self._period = LoopFigures()
        self._report = report
        self._report_interval_s = report_interval_s
        self._period_ends = time.monotonic() + report_interval_s
        self._log = log
        self._logged_at = -LOG_INTERVAL_S
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._schedstats = [_opened("/proc/thread-self/schedstat")]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch within the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            # It may wait for this loop to call back: not joined, and it ends by itself.

    def _watch(self) -> None:
        self._schedstats.append(_opened("/proc/thread-self/schedstat"))
        while True:
            began, queued = time.monotonic(), self._queued_s()
            if self._ended.wait(SAMPLE_S):
                return
            late = time.monotonic() - began - SAMPLE_S
            frames = sys._current_frames()  # noqa: SLF001 - the documented way to others' stacks
            frame = frames.get(self._watched)
            if frame is None:
                return
            if late > NOTED_S or not _is_idle(frame):
                culprit = self._culprit(frames)
                del frame, frames
                self._measure(began + SAMPLE_S, queued, culprit)
            else:
                del frame, frames  # they keep what their functions have alive
            if time.monotonic() >= self._period_ends:
                self._end_period()

    def _measure(self, began: float, queued: float, culprit: str) -> None:
        answered = threading.Event()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # closed
            return
        seen = False
        while not answered.wait(LOGGED_S):
            if self._ended.is_set():
                return
            frames = {} if seen else sys._current_frames()  # noqa: SLF001 - as above
            frame = frames.get(self._watched)
            if frame is not None and not _is_idle(frame):
                culprit, seen = self._culprit(frames), True
            del frame, frames
        # A machine that gives the loop's thread or this one no processor is not the loop's fault.
        held_up = time.monotonic() - began - max(self._queued_s() - queued, 0.0)
        if held_up > NOTED_S:
            self._note(held_up, culprit)

    def _culprit(self, frames: Mapping[int, FrameType]) -> str:
        """What the loop's thread runs, and then what others do that could keep the interpreter's lock."""
        names = {each.ident: each.name for each in threading.enumerate()}
        told = [_innermost(frames[self._watched], _FRAMES, _IDLE) or "native code"]
        for ident, frame in frames.items():
            if ident in {self._watched, self._thread.ident} or len(told) > _OTHER_THREADS:
                continue
            found = _innermost(frame, _OTHER_FRAMES, _WAITING)
            if found:
                told.append(f"beside it {names.get(ident, 'a thread')[:_NAME_CHARS]}: {found}")
        return "; ".join(told)

    def _note(self, held_up: float, culprit: str) -> None:
        self.figures = self.figures.with_one(held_up, culprit)
        self._period = self._period.with_one(held_up, culprit)
        if held_up > LOGGED_S and time.monotonic() - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = time.monotonic()
            with contextlib.suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(self._log, held_up, culprit, self.figures.over_100_ms)

    def _end_period(self) -> None:
        ended, self._period = self._period, LoopFigures()
        self._period_ends = time.monotonic() + self._report_interval_s
        if ended.over_20_ms:
            with contextlib.suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(self._report, ended)

    def _queued_s(self) -> float:
        """How long the loop's thread and this one have waited for a processor so far, by `schedstat`. 0: unknown."""
        try:
            return sum(int(os.pread(each, 64, 0).split()[1]) for each in self._schedstats) / 1e9
        except (OSError, IndexError):
            return 0.0


def _opened(path: str) -> int:
    """A descriptor for as long as the process lives: opening it 50 times a second cost more than all else. -1: none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _is_idle(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(_IDLE)


def _innermost(frame: FrameType, limit: int, outermost: tuple[str, ...]) -> str:
    """The innermost functions, each with its file and line, up to one of these files. Empty: it is the innermost."""
    found: list[str] = []
    each: FrameType | None = frame
    while each is not None and len(found) < limit and not each.f_code.co_filename.endswith(outermost):
        file = "/".join(PurePath(each.f_code.co_filename).parts[-3:])
        found.append(f"{each.f_code.co_qualname[:_FUNCTION_CHARS]} ({file[-_FILE_CHARS:]}:{each.f_lineno})")
        each = each.f_back
    return " < ".join(found)
