"""Runs pieces of Python in the backend without namespaces, which is forced here, and takes home what they found."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fumehood_sandbox import Backend, Level, Policy, SandboxedProcess
from fumehood_sandbox.outside.identity import user_for

from tests.sandbox.harness import BOUND_S, read_to_end, running

IDENTITY = "backend test"


@contextmanager
def folder_for_everybody() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own are closed to all but their maker."""
    with tempfile.TemporaryDirectory(prefix="backend-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def granted(path: Path, *files: str) -> Path:
    """A folder that belongs to the program's user, with files of his."""
    path.mkdir()
    for name in files:
        (path / name).write_text(name)
    owner = user_for(IDENTITY)
    if owner is not None:
        for each in (path, *path.iterdir()):
            os.chown(each, *owner)
    return path


def policy(level: Level = Level.NONE, **fields: Any) -> Policy:
    """A policy whose minimum allows the backend."""
    return Policy(level=level, minimum=Backend.LANDLOCK, identity=IDENTITY, **fields)


@contextmanager
def held(folder: Path, code: str, given: Policy | None = None) -> Iterator[SandboxedProcess]:
    """A process in which this code runs as a module. Closed at the end."""
    with running(folder, code, given or policy(), backend=Backend.LANDLOCK) as process:
        yield process


def inside(folder: Path, code: str, given: Policy | None = None) -> Any:
    """Run the code to its end and return the one thing that it reported."""
    with held(folder, code, given) as process:
        out, err = read_to_end(process)
        assert process.wait(BOUND_S) == 0, err
    return json.loads(out)
