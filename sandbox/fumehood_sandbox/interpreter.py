"""The Python that stages run in."""

from __future__ import annotations

import sys
from pathlib import Path


def stage_interpreter() -> str:
    """Absolute path of the running interpreter, without its venv. It is the same inside and outside a sandbox."""
    return str(Path(getattr(sys, "_base_executable", None) or sys.executable).resolve())
