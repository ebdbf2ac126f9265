"""What is watched while attacks go on: the sidecar's memory, and the caller that behaves well."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.05
_END_S = 90.0
_WARM_CALLS = 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessWatch:
    """Resident memory of one process, without its children, sampled all the time; and its wait for a processor."""

    def __init__(self, pid: int) -> None:
        """Begin."""
        self._statm = Path(f"/proc/{pid}/statm")
        self._schedstat = Path(f"/proc/{pid}/schedstat")
        self._waited_s = 0.0
        self._peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def now_mib(self) -> float:
        """What it holds."""
        return int(self._statm.read_text().split()[1]) * _PAGE_BYTES / (1 << 20)

    def take_peak_mib(self) -> float:
        """The most that it has held since this was asked last."""
        peak, self._peak = max(self._peak, self.now_mib()), 0.0
        return peak

    def take_processor_wait_s(self) -> float:
        """How long its event loop was ready to run and had no processor, since this was asked last.

        On a machine that others use, this is what calls were late for.
        """
        try:
            now_s = int(self._schedstat.read_text().split()[1]) / 1e9  # of the main thread (proc(5))
        except OSError:  # a kernel without CONFIG_SCHED_INFO
            return 0.0
        waited_s, self._waited_s = now_s - self._waited_s, now_s
        return waited_s

    def stop(self) -> None:
        """Sample no more."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            with contextlib.suppress(OSError):
                self._peak = max(self._peak, self.now_mib())


@dataclass(frozen=True, slots=True)
class Latency:
    """What one caller met within some time."""

    calls: int
    not_ok: dict[str, int]
    """How those ended that had no result."""
    p50_ms: float
    p99_ms: float
    longest_ms: float


class Caller:
    """The process of the caller that behaves well."""

    def __init__(self, target: str, outcomes: Path, *, nice: int) -> None:
        """Start it, with this niceness beside ours."""
        self._outcomes = outcomes
        self._process = subprocess.Popen((sys.executable, "-m", "tests.soak.caller", target, str(outcomes)))
        os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)

    def wait_until_answered(self) -> None:
        """Return once its calls are answered, as they are when the plugin has started.

        Raises:
            TimeoutError: they are not.
        """
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if sum(ending == "ok" for *_, ending in self._read()) > _WARM_CALLS:
                return
        raise TimeoutError("the first calls are not answered")

    def between(self, begin: float, end: float) -> Latency:
        """The calls that were due between two times (`time.time()`), once all of them have ended."""
        deadline = time.monotonic() + _END_S
        while (found := self._calls(begin, end)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        calls = found or []
        ordered = sorted(latency for _, latency, _ in calls) or [float("inf")]
        not_ok = Counter(ending for *_, ending in calls if ending != "ok")
        if found is None:
            not_ok["no outcome"] += 1
        return Latency(
            calls=len(calls),
            not_ok=dict(not_ok),
            p50_ms=ordered[len(ordered) // 2],
            p99_ms=ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)],
            longest_ms=ordered[-1],
        )

    def stop(self) -> None:
        """Let it finish what is under way, and end."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_END_S)

    def _calls(self, begin: float, end: float) -> list[tuple[float, float, str]] | None:
        """None: not all of them have ended."""
        found = [each for each in self._read() if begin <= each[0] < end]
        expected = int((end - begin) / 0.01) - 2
        return found if len(found) >= expected else None

    def _read(self) -> Iterator[tuple[float, float, str]]:
        if not self._outcomes.exists():
            return
        for line in self._outcomes.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                due, latency, ending = line.split()
                yield float(due), float(latency), ending


@contextlib.contextmanager
def watching(pid: int, target: str, outcomes: Path, *, nice: int) -> Iterator[tuple[ProcessWatch, Caller]]:
    """Both, until the block ends."""
    sidecar, caller = ProcessWatch(pid), Caller(target, outcomes, nice=nice)
    try:
        yield sidecar, caller
    finally:
        caller.stop()
        sidecar.stop()
