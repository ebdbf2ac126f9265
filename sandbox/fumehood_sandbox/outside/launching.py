"""A start under way: reads the status pipe until the program runs, and kills what was started if it never does.

What differs between the backends is their `BackendStart`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fumehood_sandbox.cgroup import BOUNDING, Control
from fumehood_sandbox.errors import LaunchError, SandboxError
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.receipt import Layer

_LONGEST_COMPLAINT_BYTES = 4096
_LONGEST_STATUS_BYTES = 64 * 1024
"""The stage writes about 1 KiB; all of it comes before the program runs, so nobody hostile writes here."""
_NO_QUOTA = Layer("cpus", "not bounded, since no cgroup has a quota of processor time", weaker=True)
_INNER_LAYERS = ("speculation", "rlimits", "identity", "capabilities", "landlock", "descriptors", "seccomp")


@dataclass(frozen=True, slots=True)
class StageReports:
    """What the stages wrote to the status pipe, a line each, by fields."""

    lines: tuple[tuple[str, ...], ...]

    def first(self, kind: str) -> tuple[str, ...] | None:
        """The fields after `kind` of its first line, if there is one."""
        return next((line[1:] for line in self.lines if line[0] == kind), None)

    def layers(self, *further: str, bounded: frozenset[Control]) -> tuple[Layer, ...]:
        """The layers that the inner stage has put in force, these further ones among them.

        `bounded` is what a cgroup does. Where that isn't all, the limits of each process are weaker.

        Raises:
            LaunchError: one isn't in force.
        """
        reported = {line[1]: line[2] for line in self.lines if line[0] == "layer"}
        names = (*_INNER_LAYERS, *further)
        missing = [name for name in names if name not in reported]
        if missing:
            raise LaunchError("status", f"not reported: {', '.join(missing)}")
        made = tuple(_layer(name, reported[name], BOUNDING - bounded) for name in names)
        return made if Control.QUOTA in bounded else (*made, _NO_QUOTA)


def _layer(name: str, detail: str, unbounded: frozenset[Control]) -> Layer:
    if name != "rlimits" or not unbounded:
        return Layer(name, detail)
    missing = ", ".join(sorted(unbounded))
    return Layer(name, f"{detail}; of each process, since no cgroup bounds the tree's {missing}", weaker=True)


class BackendStart(Protocol):
    """What a backend started, and what it takes to make a process of it or to undo it."""

    step: str
    """What an error names when the starter has ended and reported nothing."""
    starter: str
    """Who that is, for people."""

    def kill(self) -> None:
        """Kill what was started and reap it. Idempotent."""

    def release(self) -> None:
        """Give up everything else. Called once, when what was started is dead."""

    def make_process(self, reports: StageReports) -> SandboxedProcess:
        """The process, from the reports of a start that has worked. Gives everything to it.

        Raises:
            LaunchError: something is missing after all. `release` is still to be called.
        """

    def check_attached(self) -> None:
        """Check that what was started is in its cgroup.

        Raises:
            LaunchError: it isn't.
        """

    def error_of(self, step: str, problem: str, path: str, errno: int) -> SandboxError:
        """The error that a stage reported."""


class Launching:
    """A start under way. Poll `fileno()` for reading, then `advance()`; or `abort()`."""

    def __init__(self, popen: subprocess.Popen[bytes], status_fd: int, start: BackendStart) -> None:
        """Take over the process and the pipe. Made by `start` alone."""
        self._popen = popen
        self._status_fd = status_fd
        self._start = start
        self._status = bytearray()
        self._over = False

    def fileno(self) -> int:
        """The status pipe. Readable when `advance` has something to do."""
        return self._status_fd

    def advance(self) -> SandboxedProcess | None:
        """Take in what was reported, and make a process of it when that is all: `read_reports` and `finish` in one.

        Never blocks, but for the death of what failed to start.

        Returns:
            The process once every layer is in force and the program is about to run, or None: not yet.

        Raises:
            LaunchError: a step failed. What was started is dead.
        """
        try:
            return self.finish() if self.read_reports() else None
        except BaseException:
            self.abort()
            raise

    def read_reports(self) -> bool:
        """Take in what was reported, and say whether that was all. Never blocks.

        Raises:
            LaunchError: it is more than any stage writes, or the start is over. `abort` it.
        """
        if self._over:
            raise LaunchError("launch", "it is over")
        return self._read_status()

    def finish(self) -> SandboxedProcess:
        """The process, when all was reported. May wait for the death of what failed to start.

        Raises:
            LaunchError: a step failed. `abort` it.
        """
        process = self._finish()
        self._over = True
        os.close(self._status_fd)
        return process

    def abort(self) -> None:
        """Kill what was started and wait for its end. Idempotent; does nothing once `advance` gave the process away."""
        if self._over:
            return
        self._over = True
        os.close(self._status_fd)  # before the kill: see `_report_ready` in the inner stage
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()  # before the kill as well, which needs descriptors that there may be no others for
        self._start.kill()
        self._start.release()

    def _read_status(self) -> bool:
        """Read what is there, and say whether that was the end: whoever could write has become the program, or is dead.

        Raises:
            LaunchError: it is more than any stage writes.
        """
        while True:
            try:
                part = os.read(self._status_fd, 4096)
            except BlockingIOError:
                return False
            if not part:
                return True
            self._status += part
            if len(self._status) > _LONGEST_STATUS_BYTES:
                raise LaunchError("status", "more was reported than any stage writes")

    def _finish(self) -> SandboxedProcess:
        lines = self._status.decode("utf-8", "replace").splitlines()
        reports = StageReports(tuple(tuple(line.split("\t")) for line in lines))
        failed = reports.first("error")
        if failed is not None:
            step, problem, path, errno = (*failed, "", "", "", "0")[:4]
            raise self._start.error_of(step, problem, path, int(errno or 0))
        self._start.check_attached()
        if reports.first("ready") is None:
            raise LaunchError(self._start.step, self._complaint())
        return self._start.make_process(reports)

    def _complaint(self) -> str:
        """What the starter said. It has the program's stderr until the program runs, which never happened."""
        self._start.kill()
        assert self._popen.stderr is not None  # noqa: S101 - it was asked for
        fd = self._popen.stderr.fileno()
        os.set_blocking(fd, False)
        with contextlib.suppress(BlockingIOError):
            text = os.read(fd, _LONGEST_COMPLAINT_BYTES).decode("utf-8", "replace").strip()
            if text:
                return text
        return f"{self._start.starter} ended with status {self._popen.returncode} and said nothing"


def take_pipes(popen: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    """This side's ends of the program's pipes, taken from the objects around them.

    Raises:
        OSError: there are too few descriptors left.
    """
    assert popen.stdin and popen.stdout and popen.stderr  # noqa: S101, PT018 - all three were asked for
    streams = (popen.stdin, popen.stdout, popen.stderr)
    fds: list[int] = []
    try:
        for stream in streams:
            fds.append(os.dup(stream.fileno()))
            stream.close()
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return fds[0], fds[1], fds[2]


def spawn_stage(command: Sequence[str], inherited: Sequence[int], *, step: str) -> subprocess.Popen[bytes]:
    """Start a program with three pipes, these descriptors, and nothing else of this process.

    No preexec_fn: the launcher has threads, and between fork and exec none may run Python code.

    Raises:
        LaunchError: it could not be run; `step` names it.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=inherited,
            env={},  # its own environment stays readable in /proc/1/environ, whatever --clearenv says
            cwd="/",
            process_group=0,  # so that what isn't fit to die with its parent yet can be killed; see `BubblewrapStart`
            bufsize=0,
        )
    except OSError as error:
        raise LaunchError(step, error.strerror or "", path=command[0], errno=error.errno or 0) from error
