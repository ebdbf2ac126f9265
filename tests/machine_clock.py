"""A wall clock that a test sets while a process runs: Debian's libfaketime in that process, CLOCK_REALTIME alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_LIBRARY = "faketime/libfaketimeMT.so.1"
_SITE = """
import select, time

time.sleep = lambda seconds: select.select((), (), (), seconds) and None
"""
"""Python sleeps by clock_nanosleep until a moment of CLOCK_MONOTONIC, which libfaketime 0.9.10 counts from a start of
that clock that it has not set, so that the kernel refuses it: each `time.sleep` is an OSError. `subprocess` sleeps so
where a child's pipes close before it is gone, as those of bubblewrap do on a busy machine."""


def library() -> Path | None:
    """Where it is. None: it isn't installed."""
    return next(iter(sorted(Path("/usr/lib").glob(f"*/{_LIBRARY}"))), None)


class MachineClock:
    """For processes that are started with `environment`; their children in sandboxes have the real one."""

    def __init__(self, folder: Path) -> None:
        """It begins as the real one. `folder` is the test's own."""
        found = library()
        if found is None:
            pytest.skip("needs Debian's libfaketime: make setup")
        self._path = folder / "clock"
        self.set(0)
        site = folder / "clock_site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(site),
            "LD_PRELOAD": str(found),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, ahead_s: int) -> None:
        """Have it before the real one by so much from now on."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}\n")
        new.replace(self._path)


__all__ = ["MachineClock", "library"]
