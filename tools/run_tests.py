"""Runs pytest with the given arguments, and what failed of it once more, by itself: `python -m tools.run_tests ARGS`.

A test of real processes, sockets and clocks may fail for want of a processor while others run beside it. Up to
`MOST_AGAIN` failures run again, alone, and the run passes if they do then; each is named, as a test that is to be
mended. More of them are a fault of what is tested, and so is what fails twice. The status is pytest's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST_AGAIN = 3
_FAILED = 1
"""pytest's status where tests have failed, and nothing else went wrong."""
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    """Run pytest, again where a few tests have failed. In the folder that it is run in."""
    status = subprocess.call([sys.executable, "-m", "pytest", "--cache-clear", *arguments])
    if status != _FAILED or not _LAST_FAILED.is_file():
        return status
    failed = sorted(json.loads(_LAST_FAILED.read_text()))
    if len(failed) > MOST_AGAIN:
        return status
    print(f"\nOnce more, alone: {len(failed)} failed.", flush=True)
    again = subprocess.call([sys.executable, "-m", "pytest", *failed])
    if again == 0:
        print("\n".join(f"{name} passed only when it ran alone: it is to be mended." for name in failed), flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
