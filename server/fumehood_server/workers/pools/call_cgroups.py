"""Gives each process that a zygote forked a cgroup of its own, before it has its call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood_sandbox import LaunchError, cgroups

from fumehood_server.launches import end_off_loop, start_off_loop

if TYPE_CHECKING:
    from fumehood_sandbox import ForkedProcess, Leaf, Policy

MAX_EMPTY_LEAVES = 16
"""Leaves that wait for a child. Calls end in bursts: of eight at a time, with eight leaves, every tenth was made anew,
and each that is made and removed costs the kernel a third of a call's whole processor time."""


class CallCgroups:
    """The cgroup leaves of one zygote's children, whose limits they would otherwise share with it.

    With version 1 of cgroups each child moves itself into its leaf. Elsewhere it is moved by a thread, since the kernel
    may take 15 ms for that.
    """

    def __init__(self, policy: Policy) -> None:
        """Leaves with the limits of this policy."""
        self._policy = policy
        self._empty: list[Leaf] = []
        """Of calls that have ended, and as new."""
        self._closed = False

    @property
    def joined(self) -> bool:
        """Whether children join a leaf by themselves. Otherwise `move` each when it is there."""
        return self._policy.cgroups and cgroups().joining_thread is not None

    def take_empty(self) -> Leaf | None:
        """A leaf that the next child joins, which costs neither time nor a thread. None: there is none left."""
        return self._empty.pop() if self._empty else None

    async def make_leaf(self) -> Leaf | None:
        """A new one; the kernel may take 50 ms for it where others make some at the same time.

        Raises:
            LaunchError: none can be made now.
        """
        leaf = await self._make_leaf()
        if leaf is not None:
            leaf.reuse = self._keep
        return leaf

    async def discard(self, leaf: Leaf) -> None:
        """Remove one that no child has joined."""
        await end_off_loop(leaf.discard)

    async def move(self, child: ForkedProcess) -> None:
        """Put a child into a leaf, unless it has joined one. The child stays the caller's.

        Raises:
            LaunchError: it can't be moved, or has children of its own, which may be from before the move: they would be
                in the zygote's leaf for ever.
        """
        if child.leaf is not None or not self._policy.cgroups:
            return
        leaf = await self._make_leaf()
        if leaf is None:
            return
        try:
            await asyncio.to_thread(_move_alone, leaf, child)
        except BaseException as error:
            await self.discard(leaf)
            if isinstance(error, OSError):
                raise LaunchError("cgroup", error.strerror or "", errno=error.errno or 0) from error
            raise
        child.leaf = leaf

    async def _make_leaf(self) -> Leaf | None:
        return await start_off_loop(
            lambda: cgroups().leaf(self._policy.limits, owner=self._policy.identity, killed_otherwise=True),
            undo=lambda made: None if made is None else made.discard(),
        )

    def close(self) -> None:
        """Keep no leaf any more. Idempotent."""
        self._closed = True
        while self._empty:
            self._empty.pop().discard()

    def _keep(self, leaf: Leaf) -> bool:
        if self._closed or len(self._empty) >= MAX_EMPTY_LEAVES or not leaf.reset():
            return False
        self._empty.append(leaf)
        return True


def _move_alone(leaf: Leaf, child: ForkedProcess) -> None:
    """Move a child that has started no others.

    Raises:
        OSError: the kernel refuses it, or the child is gone.
        LaunchError: it has children.
    """
    leaf.add_process(child.pid)
    if len(child.pids()) > 1:
        raise LaunchError("zygote", "a process for a call started others before its call came")
