"""What is left of something that failed for want of descriptors: nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fumehood_sandbox import (
    Executable,
    ForkServer,
    Launching,
    Level,
    Limits,
    Policy,
    PythonModule,
    SandboxedProcess,
    SandboxError,
    cgroups,
    launch,
    start,
    system_runtime,
)
from fumehood_sandbox.landlock_only.process import leader_pidfd

from tests.resources.leaves import own_leaves, within

from .harness import BOUND_S, open_here, read_line, readable, room_for, running

SHELL = Policy(level=Level.NONE, runtime=system_runtime(), environment=(("PATH", "/usr/bin:/bin"),))
SLEEPS = Executable(("sleep", "100"))
LEFT = range(8)
POPEN_LEAKS = pytest.mark.skipif(
    sys.version_info < (3, 11, 4), reason="this Python keeps the pipes of a Popen that could not be made (gh-87474)"
)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Descriptors, processes and cgroups are the same afterwards."""
    launch(SHELL, Executable(("true",)), timeout_s=BOUND_S).close()  # what is found out once
    cgroups().remove_leftovers()
    gc.collect()  # what tests before have left open closes now, and not between the two looks
    before, leaves = (open_here(), _children()), own_leaves()
    yield
    assert (open_here(), _children()) == before
    assert within(BOUND_S, lambda: own_leaves() <= leaves), "killed processes are vanishing for a while"


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("left", LEFT)
def test_leaf_that_is_not_made(left: int) -> None:
    if not cgroups().parents:
        pytest.skip("no cgroups here")
    with room_for(left), contextlib.suppress(SandboxError):
        leaf = cgroups().leaf(Limits(), killed_otherwise=True)
        if leaf is not None:
            leaf.discard()


def _advanced(launching: Launching) -> SandboxedProcess:
    while True:
        readable(launching.fileno())
        process = launching.advance()
        if process is not None:
            return process


@pytest.mark.parametrize("left", LEFT)
def test_start_that_goes_on(left: int) -> None:
    launching = start(SHELL, SLEEPS)
    with room_for(left):
        try:
            process = _advanced(launching)
        except (SandboxError, OSError):
            return
        finally:
            launching.abort()
    process.close()


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("reported", [False, True])
def test_start_that_is_given_up(left: int, reported: bool) -> None:
    launching = start(SHELL, SLEEPS)
    if reported:
        readable(launching.fileno())
    with room_for(left):
        launching.abort()


@pytest.mark.parametrize("left", LEFT)
def test_leader_that_is_not_held(left: int) -> None:
    with subprocess.Popen(["/bin/sleep", "100"]) as leader:
        try:
            with room_for(left), contextlib.suppress(OSError):
                held = leader_pidfd(leader.pid, os.getpid())
                assert held is not None, "it lives: without a hold nothing would end it"
                os.close(held)
        finally:
            leader.kill()


@pytest.mark.parametrize("left", LEFT)
def test_fork_supervisor_that_is_not_started(left: int) -> None:
    with contextlib.ExitStack() as stack:
        policy = Policy(level=Level.NONE, limits=Limits(), identity="no-descriptors")
        server = ForkServer(policy, PythonModule("this", forks=1))
        stack.callback(server.close)
        process = _advanced(server.launching)
        stack.callback(process.close)
        with room_for(left), contextlib.suppress(SandboxError, OSError):
            server.start_supervisor(process)


@pytest.mark.parametrize("left", [0, 1])
def test_terminate_that_can_not_hold_every_process(tmp_path: Path, left: int) -> None:
    code = """
    os.fork()
    report("ready")
    signal.pause()
    """
    with running(tmp_path, code) as process:
        assert read_line(process.stdout) == '"ready"'
        with room_for(left):
            process.terminate()
        if left:
            process.kill()


@POPEN_LEAKS
@pytest.mark.parametrize("left", range(30))
def test_start_that_is_not_begun(left: int) -> None:
    launching = None
    with room_for(left), contextlib.suppress(SandboxError, OSError):
        launching = start(SHELL, SLEEPS)
    if launching is not None:
        launching.abort()


@POPEN_LEAKS
@pytest.mark.parametrize("left", range(30))
def test_zygote_that_is_not_begun(left: int) -> None:
    server = None
    with room_for(left), contextlib.suppress(SandboxError, OSError):
        policy = Policy(level=Level.NONE, limits=Limits(), identity="no-descriptors")
        server = ForkServer(policy, PythonModule("this", forks=1))
    if server is not None:
        server.launching.abort()
        server.close()
