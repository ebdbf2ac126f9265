"""What is watched while attacks go on: the sidecar's memory, and the callers that behave well."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from tests.soak.processor_waits import RunDelays, threads_of

CALL_PERIOD_S = 0.01
ECHO_PERIOD_S = 0.02
_SAMPLE_S = 0.005
_END_S = 90.0
_WARM_CALLS = 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessWatch:
    """The sidecar's process, sampled all the time: its memory, and how long calls wait for a processor."""

    def __init__(self, pid: int) -> None:
        """Begin."""
        self._pid = pid
        self._statm = Path(f"/proc/{pid}/statm")
        self._workers: tuple[int, ...] = ()
        self._peak = 0.0
        self._loop, self._calls = RunDelays(), RunDelays()
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

    def watch_workers(self) -> None:
        """From now on watch the programs that it runs at this moment as well: the worker of who behaves well."""
        below = psutil.Process(self._pid).children(recursive=True)
        starters = {each.ppid() for each in below}
        self._workers = tuple(each.pid for each in below if each.pid not in starters)

    def loop_waited_s(self, begin: float, end: float) -> float:
        """How long its event loop was ready to run and had no processor, between two times (`time.time()`)."""
        return self._loop.within(begin, end)

    def waited_s(self, begin: float, end: float) -> float:
        """How long a thread of it (the loop's, gRPC's), or of those workers, was ready to run and had no processor.

        On a machine that attackers share, this is what calls were late for and the sidecar can't help: plugins have a
        quarter of a process's weight, so a worker waits the longest.
        """
        return self._calls.within(begin, end)

    def stop(self) -> None:
        """Sample no more."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        loop = [f"/proc/{self._pid}/task/{self._pid}"]
        while not self._stop.wait(_SAMPLE_S):
            with contextlib.suppress(OSError):  # no such process any more
                self._peak = max(self._peak, self.now_mib())
            self._loop.sample(loop)
            self._calls.sample(threads_of((self._pid, *self._workers)))


@dataclass(frozen=True, slots=True)
class Latency:
    """What one caller met within some time."""

    calls: int
    not_ok: dict[str, int]
    """How those ended that had no result."""
    p50_ms: float
    p99_ms: float
    longest_ms: float
    p99_with_processor_ms: float
    """The p99 of what is left of each when the time is taken off in which sidecar or worker had no processor."""


class Caller:
    """The process of a caller that behaves well, and the outcomes that it has written."""

    def __init__(self, way: Literal["call", "echo"], target: str, outcomes: Path, *, period_s: float) -> None:
        """Start it."""
        self._period_s = period_s
        command = (sys.executable, "-m", "tests.soak.caller", way, target, str(outcomes), str(period_s))
        self.process = subprocess.Popen(command)
        outcomes.touch()
        self._file = outcomes.open()
        self._line = ""
        self._found: list[tuple[float, float, str]] = []

    def wait_until_answered(self) -> None:
        """Return once its calls are answered, as they are when the plugin has started.

        Raises:
            TimeoutError: they are not.
        """
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            time.sleep(0.2)
            self._read()
            if sum(ending == "ok" for *_, ending in self._found) > _WARM_CALLS:
                return
        raise TimeoutError("the first calls are not answered")

    def between(self, begin: float, end: float, sidecar: ProcessWatch) -> Latency:
        """The calls that were due between two times (`time.time()`), once all of them have ended."""
        deadline = time.monotonic() + _END_S
        while (found := self._calls(begin, end)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        calls = found or []
        ordered = sorted(latency for _, latency, _ in calls) or [float("inf")]
        waits = [1000 * sidecar.waited_s(due, due + latency / 1000) for due, latency, _ in calls]
        left = sorted(latency - wait for (_, latency, _), wait in zip(calls, waits, strict=True)) or ordered
        not_ok = Counter(ending for *_, ending in calls if ending != "ok")
        if found is None:
            not_ok["no outcome"] += 1
        return Latency(
            calls=len(calls),
            not_ok=dict(not_ok),
            p50_ms=ordered[len(ordered) // 2],
            p99_ms=_p99(ordered),
            longest_ms=ordered[-1],
            p99_with_processor_ms=_p99(left),
        )

    def stop(self) -> None:
        """Let it finish what is under way, and end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_END_S)
        self._file.close()

    def _calls(self, begin: float, end: float) -> list[tuple[float, float, str]] | None:
        """None: not all of them have ended."""
        self._read()
        found = [each for each in self._found if begin <= each[0] < end]
        expected = int((end - begin) / self._period_s) - 2
        return found if len(found) >= expected else None

    def _read(self) -> None:
        for line in self._file:
            self._line += line
            if self._line.endswith("\n"):
                due, latency, ending = self._line.split()
                self._found.append((float(due), float(latency), ending))
                self._line = ""


def _p99(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched."""

    sidecar: ProcessWatch
    caller: Caller
    echo: Caller
    """The control: the same of a bare server."""

    def between(self, begin: float, end: float) -> tuple[Latency, Latency]:
        """What both met between two times (`time.time()`)."""
        return self.caller.between(begin, end, self.sidecar), self.echo.between(begin, end, self.sidecar)


@contextlib.contextmanager
def watching(pid: int, target: str, folder: Path, *, nice: int) -> Iterator[Watch]:
    """All of it, until the block ends. `nice` is the niceness of the callers and of the control, beside ours."""
    sidecar, address = ProcessWatch(pid), f"unix:{folder}/echo"
    server = subprocess.Popen((sys.executable, "-m", "tests.soak.echo", address))
    caller = Caller("call", target, folder / "calls", period_s=CALL_PERIOD_S)
    echo = Caller("echo", address, folder / "echoes", period_s=ECHO_PERIOD_S)
    for process in (server, caller.process, echo.process):
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)
    try:
        yield Watch(sidecar, caller, echo)
    finally:
        for each in (caller, echo):
            each.stop()
        server.terminate()
        server.wait()
        sidecar.stop()
