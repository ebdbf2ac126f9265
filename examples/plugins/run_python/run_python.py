"""Runs Python that a model wrote.

The code gets a fresh interpreter for each call, in a sandbox at level `none`: no network, no files but the
interpreter's own, a scratch folder of 64 MiB, and the limits below. Whatever it starts ends with the call. Each
call has a process of its own, so that nothing of one is there for the next.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

from fumehood_sdk import Context, Plugin
from pydantic import BaseModel, Field

plugin = Plugin("run_python", version="1.0.0")

RUNNER = str(Path(__file__).with_name("runner.py"))
MAX_OUTPUT_BYTES = 64 * 1024
_MIB = 1024 * 1024


class Run(BaseModel):
    """What became of the code."""

    exit_status: int
    """As the shell counts: 128 and the signal's number for code that a signal ended."""
    stdout: str
    stderr: str
    truncated: bool
    timed_out: bool
    wall_s: float


@plugin.tool(
    side_effects="none",
    isolation="call",
    timeout_s=60,
    limits={"memory_bytes": 1024 * _MIB, "processes": 32, "cpu_s": 60},
)
async def run_python(
    code: Annotated[str, Field(min_length=1, max_length=100_000)],
    ctx: Context,
    timeout_s: Annotated[float, Field(gt=0, le=55)] = 10.0,
) -> Run:
    """Run Python code in a fresh interpreter and return what it printed and how it ended.

    It has the standard library, no network, and /tmp to write to. Print what you want to see.

    Args:
        code: The program.
        timeout_s: Seconds after which it is ended.
    """
    started = time.monotonic()
    # The first process of a PID namespace, as a call with one of its own is. Anywhere else, in a test or where the
    # operator has chosen otherwise, -1 would be everything that this process may signal.
    is_first = os.getpid() == 1
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        RUNNER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=not is_first,
    )
    stdin = process.stdin
    if stdin is None:
        raise RuntimeError("stdin is a pipe")
    # Not an argument: those may have 128 KiB (MAX_ARG_STRLEN, execve(2)), and the code could read its own.
    source = code.encode()
    stdin.write(source)
    stdin.close()
    reading = asyncio.gather(_read(process.stdout), _read(process.stderr))
    timed_out = False
    try:
        await asyncio.wait_for(_exit(process.pid), min(timeout_s, ctx.remaining_s))
    except TimeoutError:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            if is_first:
                os.kill(-1, signal.SIGKILL)  # all that the code has started
            else:
                os.killpg(process.pid, signal.SIGKILL)  # but for what has left its session
        status = await process.wait()
        (stdout, cut_stdout), (stderr, cut_stderr) = await reading
    return Run(
        exit_status=status if status >= 0 else 128 - status,
        stdout=stdout,
        stderr=stderr,
        truncated=cut_stdout or cut_stderr,
        timed_out=timed_out,
        wall_s=round(time.monotonic() - started, 3),
    )


async def _exit(pid: int) -> None:
    """Wait for the program itself. `Process.wait` waits for its pipes as well, which what it has started may hold."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def _read(stream: asyncio.StreamReader | None) -> tuple[str, bool]:
    """Keep the beginning of a stream and read the rest away, so that the code is not stopped by a full pipe."""
    kept = bytearray()
    cut = False
    while stream is not None and (data := await stream.read(65536)):
        room = MAX_OUTPUT_BYTES - len(kept)
        kept += data[:room]
        cut = cut or len(data) > room
    return kept.decode("utf-8", "replace"), cut
