"""Spawners: start bubblewrap without a cgroup, inside a leaf of version 1, or to be moved to one of version 2."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from fumehood_sandbox.cgroup import JoiningThread, Leaf
from fumehood_sandbox.outside.cgroup_attach import CgroupAttach, JoinedAttach, MovedAttach
from fumehood_sandbox.outside.launching import spawn_stage
from fumehood_sandbox.outside.stage_files import memory_file

_STEP = "bubblewrap"
_Spawned = tuple[subprocess.Popen[bytes], CgroupAttach | None]


class Spawner(Protocol):
    """Starts bubblewrap, which reads its arguments from a descriptor: anybody inside can read pid 1's command line."""

    arguments_fd: int

    def spawn(self, command: Sequence[str], inherited: Sequence[int]) -> _Spawned:
        """Start this command, which inherits these descriptors, `arguments_fd` among them.

        Raises:
            LaunchError: it could not be run.
            OSError: there are no descriptors left, or the kernel lets no thread into the leaf.
        """


def spawner_for(leaf: Leaf | None, thread: JoiningThread | None, arguments: bytes, stack: ExitStack) -> Spawner:
    """The spawner for this leaf and the thread that can join it, if there are any. Its descriptors go to the stack."""
    if leaf is None:
        return _PlainSpawner(arguments, stack)
    if thread is not None:
        return _JoiningSpawner(leaf, thread, arguments, stack)
    return _MovingSpawner(leaf, arguments, stack)


class _PlainSpawner(Spawner):
    """No cgroup."""

    def __init__(self, arguments: bytes, stack: ExitStack) -> None:
        self.arguments_fd = _arguments_file(arguments, stack)

    def spawn(self, command: Sequence[str], inherited: Sequence[int]) -> _Spawned:
        return spawn_stage(command, inherited, step=_STEP), None


class _JoiningSpawner(Spawner):
    """Version 1: a thread joins the leaf, and bubblewrap begins where the thread is."""

    def __init__(self, leaf: Leaf, thread: JoiningThread, arguments: bytes, stack: ExitStack) -> None:
        self._leaf, self._thread = leaf, thread
        self.arguments_fd = _arguments_file(arguments, stack)

    def spawn(self, command: Sequence[str], inherited: Sequence[int]) -> _Spawned:
        start = functools.partial(spawn_stage, command, inherited, step=_STEP)
        return self._thread.run_in(self._leaf, start), JoinedAttach(self._leaf)


class _MovingSpawner(Spawner):
    """Version 2: bubblewrap waits at a pipe for its arguments, which are written when it has been moved."""

    def __init__(self, leaf: Leaf, arguments: bytes, stack: ExitStack) -> None:
        self._leaf, self._arguments = leaf, arguments
        self.arguments_fd, self._pipe_fd = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, self.arguments_fd)
        stack.callback(os.close, self._pipe_fd)

    def spawn(self, command: Sequence[str], inherited: Sequence[int]) -> _Spawned:
        pipe_fd = os.dup(self._pipe_fd)  # before there is a process, which would wait for ever if this failed
        try:
            popen = spawn_stage(command, inherited, step=_STEP)
        except BaseException:
            os.close(pipe_fd)
            raise
        return popen, MovedAttach(self._leaf, popen, pipe_fd, self._arguments)


def _arguments_file(arguments: bytes, stack: ExitStack) -> int:
    fd = memory_file("fumehood-arguments", arguments)
    stack.callback(os.close, fd)
    return fd
