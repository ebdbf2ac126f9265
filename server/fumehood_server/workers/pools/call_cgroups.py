"""Gives each process that a zygote forked a cgroup of its own, before it has its call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_sandbox import LaunchError, cgroups

if TYPE_CHECKING:
    from fumehood_sandbox import ForkedProcess, Leaf, Policy


_MOST_EMPTY = 16
"""Leaves that wait for a child. Calls end in bursts: of eight at a time, with eight leaves, every tenth was made anew,
and each that is made and removed costs the kernel a third of a call's whole processor time."""


class CallLeaves:
    """Moves children out of their zygote's leaf, whose limits they would share.

    With version 1 of cgroups each child moves itself. Elsewhere it is moved: the kernel may take 15 ms for that, so it
    is waited for in a thread; a child waits meanwhile, and so does nobody else as long as there are spares.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        on_child: Callable[[ForkedProcess], None],
        on_failed: Callable[[LaunchError], None],
    ) -> None:
        """`on_child` gets each child when it is in; `on_failed` the first error, with the child ended."""
        self._policy = policy
        self._on_child = on_child
        self._on_failed = on_failed
        self._moves: set[asyncio.Task[None]] = set()
        self._empty: list[Leaf] = []
        """Of calls that have ended, and as new."""
        self._closed = False

    def for_next(self) -> Leaf | None:
        """A leaf that the next child can join by itself, which costs neither time nor a thread.

        None where there is no such leaf: then `take` moves the child when it is there.

        Raises:
            LaunchError: none can be made now.
        """
        if not self._policy.cgroups or cgroups().joining_thread is None:
            return None
        if self._empty:
            return self._empty.pop()
        leaf = cgroups().leaf(self._policy.limits, killed_otherwise=True)
        if leaf is not None:
            leaf.reuse = self._keep
        return leaf

    def _keep(self, leaf: Leaf) -> bool:
        if self._closed or len(self._empty) >= _MOST_EMPTY or not leaf.reset():
            return False
        self._empty.append(leaf)
        return True

    def close(self) -> None:
        """Keep no leaf any more. Idempotent."""
        self._closed = True
        while self._empty:
            self._empty.pop().discard()

    def take(self, child: ForkedProcess) -> None:
        """Take over a child that was just born."""
        if child.leaf is not None:
            self._on_child(child)
            return
        try:
            leaf = cgroups().leaf(self._policy.limits, killed_otherwise=True) if self._policy.cgroups else None
        except LaunchError as error:
            child.close()
            self._on_failed(error)
            return
        if leaf is None:
            self._on_child(child)
            return
        move = asyncio.get_running_loop().create_task(self._move(child, leaf))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    async def _move(self, child: ForkedProcess, leaf: Leaf) -> None:
        try:
            await asyncio.to_thread(_add, leaf, child)
        except BaseException as error:
            child.close()
            leaf.discard()
            if isinstance(error, OSError):
                error = LaunchError("cgroup", error.strerror or "", errno=error.errno or 0)
            if not isinstance(error, LaunchError):
                raise
            self._on_failed(error)
        else:
            child.leaf = leaf
            self._on_child(child)


def _add(leaf: Leaf, child: ForkedProcess) -> None:
    """Put a child into its leaf, with nothing of it left outside.

    Raises:
        OSError: the kernel refuses it, or the child is gone.
        LaunchError: it has children, which may be from before the move: they would be in the zygote's leaf for ever.
    """
    leaf.add_process(child.pid)
    if len(child.pids()) > 1:
        raise LaunchError("zygote", "a process for a call started others before its call came")
