"""Where images and results lie: a folder that git ignores."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "kernels"
RESULTS = BUILD / "results"


class KernelsError(Exception):
    """What keeps the kernels from being tried, and what to do about it."""


def run(command: Sequence[str | Path], *, what: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command quietly; its output is in the error if it fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd, env=env
        )  # fmt: skip
    except OSError as error:
        raise KernelsError(f"{what} can't be started: {error}") from error
    if done.returncode:
        raise KernelsError(f"{what} failed ({done.returncode}): {(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout
