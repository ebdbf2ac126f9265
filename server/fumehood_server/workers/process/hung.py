"""Closes a process that SIGKILL did not end, once the kernel lets it go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess


def close_when_gone(process: SandboxedProcess, pidfds: set[int]) -> None:
    """Close a process that hangs in the kernel, as on a dead mount, when these pidfds tell that it has vanished.

    By callbacks of the loop, since no task can be made to wait for what may never end.
    """
    loop = asyncio.get_running_loop()

    def process_exited(pidfd: int) -> None:
        loop.remove_reader(pidfd)
        pidfds.discard(pidfd)
        if not pidfds:
            process.close()

    for pidfd in pidfds:
        loop.remove_reader(pidfd)
        loop.add_reader(pidfd, process_exited, pidfd)
