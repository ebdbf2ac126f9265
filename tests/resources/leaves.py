"""Leaves of one version, and programs in them."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fumehood_sandbox import Limits
from fumehood_sandbox.cgroup import Cgroups, Leaf, cgroups
from fumehood_sandbox.cgroup.discovery import find
from fumehood_sandbox.cgroup.hierarchy import hierarchies
from fumehood_sandbox.cgroup.names import new_name

BOUND_S = 60.0
MIB = 1024 * 1024
LIMITS = Limits(memory_bytes=64 * MIB, processes=8)


def of_version(version: int) -> Cgroups:
    return find(tuple(each for each in hierarchies() if each.version == version))


def mounted(version: int) -> Cgroups:
    """Skips where this version can't be used at all: most machines have one of the two."""
    found = of_version(version)
    if not found.parents:
        pytest.skip(f"version {version} can't be used here: {'; '.join(found.problems) or 'it is not mounted'}")
    return found


def bounding(version: int) -> Cgroups:
    """Skips where this version lacks a controller, which is bound to one version at a time."""
    found = mounted(version)
    if found.missing:
        pytest.skip(f"version {version} has no control of {', '.join(found.missing)} here")
    return found


@contextlib.contextmanager
def running(code: str, leaf: Leaf) -> Iterator[subprocess.Popen[str]]:
    """A program in a leaf. It begins once it is in."""
    begun = f"import os, signal, sys\nsys.stdin.readline()\n{code}"
    command = [sys.executable, "-I", "-S", "-c", begun]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        leaf.add_process(process.pid)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            leaf.kill()
            process.wait(BOUND_S)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], BOUND_S)
    assert ready
    return process.stdout.readline().strip()


def within(bound_s: float, condition: Callable[[], bool]) -> bool:
    """Whether it comes true. For what the kernel does in its own time and tells nobody."""
    until = time.monotonic() + bound_s
    while not (true := condition()) and time.monotonic() < until:
        time.sleep(0.001)
    return true


def own_leaves() -> set[Path]:
    """Those that this process has made, once what was still vanishing is gone.

    An owner's folder stays as long as this process: none of its leaves may.
    """
    found, own = cgroups(), new_name().rpartition("-")[0]
    found.remove_leftovers()
    owners = {Path(each) for folders in found._owner_folders.values() for each in folders._folders.values()}
    patterns = (f"{own}*", f"{own}*/{own}*")
    return {path for each in found.parents for one in patterns for path in Path(each.folder).glob(one)} - owners
