"""Server and client processes of one run, each owned by an `async with`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

READY_S = 60.0
"""From a server's start to its first sign of life, on a machine that is busy otherwise."""

END_S = 10.0
"""From SIGTERM to the end: longer than the sidecar's drain of workers without calls."""


class ProcessFailedError(Exception):
    """A process of the benchmark ended, or said nothing, when an answer was due. `stderr` holds its last words."""

    def __init__(self, command: Sequence[str], problem: str) -> None:
        """Keep what was run."""
        super().__init__(f"{' '.join(command)}: {problem}")
        self.command = tuple(command)


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of this repository with this interpreter."""
    return (sys.executable, "-m", module, *arguments)


@asynccontextmanager
async def running(command: Sequence[str], *, stderr: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command with piped stdin and stdout, and end it: end of file and SIGTERM, SIGKILL, each bounded.

    What it has started and left behind ends with it: such a process would hold its stdout, whose end is waited for.

    `stderr` is a file descriptor to write to; None is this process's own stderr.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=1024 * 1024,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await _end(process)


async def read_line(process: asyncio.subprocess.Process, command: Sequence[str], timeout_s: float = READY_S) -> str:
    """Return the next line of a process's stdout.

    Raises:
        ProcessFailedError: none came in time, or the process has ended.
    """
    if process.stdout is None:
        raise ProcessFailedError(command, "its stdout is not a pipe")
    try:
        async with asyncio.timeout(timeout_s):
            line = await process.stdout.readline()
    except TimeoutError as exc:
        raise ProcessFailedError(command, f"said nothing for {timeout_s} s") from exc
    if not line:
        raise ProcessFailedError(command, "ended before it answered; its stderr is above")
    return line.decode()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(ProcessLookupError):  # it has ended
        pidfd = os.pidfd_open(process.pid)
        try:
            process.terminate()
            await asyncio.to_thread(select.select, [pidfd], [], [], END_S)
        finally:
            os.close(pidfd)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    async with asyncio.timeout(END_S):
        await process.communicate()
