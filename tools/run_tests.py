"""Runs pytest with the given arguments, and what failed of it once more, by itself: `python -m tools.run_tests ARGS`.

A test of real processes, sockets and clocks may fail for want of a processor while others run beside it. Up to
`MOST_AGAIN` failures run again, alone, and the run passes if they do then; each is named, as a test that is to be
mended. More of them are a fault of what is tested, and so is what fails twice. The status is pytest's.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_AGAIN = 3


class _Failures:
    """A plugin of pytest's that notes what fails."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest. xdist calls it for what its processes run."""
        if report.failed:
            self.names[report.nodeid] = None


def main(arguments: list[str]) -> int:
    """Run pytest, again where a few tests have failed. In the folder that it is run in."""
    failures = _Failures()
    status = pytest.main(arguments, plugins=[failures])
    names = list(failures.names)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(names) <= MOST_AGAIN:
        return int(status)
    print(f"\nOnce more, alone: {len(names)} failed.", flush=True)
    again = subprocess.call([sys.executable, "-m", "pytest", *names])  # what was imported would not be imported anew
    if again == 0:
        print("\n".join(f"{name} passed only when it ran alone: it is to be mended." for name in names), flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
