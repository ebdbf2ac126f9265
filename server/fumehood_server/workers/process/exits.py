"""Watches for the end of a sandboxed process: the program's own, and that of everything it started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess


class ExitWatch:
    """Two watches: bubblewrap's exit is the program's, the end of the namespace's pid 1 is everybody's.

    One where both are the same process, as a forked one is, and where pid 1 was gone before it could be held.
    """

    __slots__ = ("_loop", "_on_all", "_on_first", "_watched", "over")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: SandboxedProcess,
        *,
        on_first: Callable[[], None],
        on_all: Callable[[], None],
    ) -> None:
        """`on_first` is called when one of two has ended, `on_all` when all have. Lasts until then."""
        self._loop = loop
        self._on_first = on_first
        self._on_all = on_all
        self.over = False
        """Whether both have ended."""
        self._watched = set(process.pidfds())
        for pidfd in self._watched:
            loop.add_reader(pidfd, self._ended, pidfd)

    def _ended(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        self._watched.discard(pidfd)
        if self._watched:
            self._on_first()
        else:
            self.over = True
            self._on_all()
