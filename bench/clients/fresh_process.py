"""Loads a fresh process for each call, by other means. `python -m bench.clients.fresh_process bwrap|futures`.

`bwrap` is the least that a sandbox with the same namespaces around a Python can be: it is started and ends, and runs
nothing. `futures` has no sandbox: a pool that replaces each process after one call.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from bench.harness.agent import Connect, serve
from bench.harness.load import Echo
from bench.payload import TEXT

MOST = 8
"""Processes at a time, in both."""
PYTHON = str(Path(sys.executable).resolve())


@asynccontextmanager
async def bwrap() -> AsyncIterator[Echo]:
    """Start bubblewrap and Python, and wait for their end."""
    program = shutil.which("bwrap") or "bwrap"
    names = ("user", "pid", "net", "ipc", "uts", "cgroup")
    command = [
        *(program, *(f"--unshare-{name}" for name in names), "--die-with-parent", "--new-session", "--clearenv"),
        *("--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/tmp"),  # noqa: S108 - inside
        *("--", PYTHON, "-I", "-S", "-c", "pass"),
    ]
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(MOST) as threads:

        async def echo() -> None:
            await loop.run_in_executor(threads, lambda: subprocess.run(command, check=True, stdin=subprocess.DEVNULL))

        yield echo


class _Executor(ProcessPoolExecutor):
    """One that starts a process whenever there is room.

    Some versions count a process that has had its one task as idle, and then wait for it for ever (CPython gh-115634).
    """

    def _adjust_process_count(self) -> None:
        if len(self._processes) < MOST:
            self._spawn_process()  # type: ignore[attr-defined] # the stubs lack it


@asynccontextmanager
async def futures() -> AsyncIterator[Echo]:
    """Run the echo in a pool of processes with one task each."""
    # "spawn" would start each process from nothing. Each would still run this program's own module anew, of which none
    # needs anything, unless the program has no name: that takes a fifth of the time.
    main = sys.modules["__main__"]
    main.__spec__ = main.__file__ = None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["concurrent.futures.process"])  # what each of them does need
    with _Executor(MOST, mp_context=context, max_tasks_per_child=1) as executor:

        async def echo() -> None:
            if await asyncio.wrap_future(executor.submit(str, TEXT)) != TEXT:
                raise RuntimeError("not an echo")

        yield echo


if __name__ == "__main__":
    _CONNECT: dict[str, Connect] = {"bwrap": bwrap, "futures": futures}
    _ONE = _CONNECT[sys.argv[1]]
    asyncio.run(serve(_ONE, _ONE))
