"""Gives each process that a zygote forked a cgroup of its own, before it has its call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood_sandbox import LaunchError, cgroups

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

    def leaf_to_join(self) -> Leaf | None:
        """A leaf that the next child joins by itself, which costs neither time nor a thread.

        None where there is no such leaf: then `move` the child when it is there.

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

    async def move(self, child: ForkedProcess) -> None:
        """Put a child into a leaf, unless it has joined one. The child stays the caller's.

        Raises:
            LaunchError: it can't be moved, or has children of its own, which may be from before the move: they would be
                in the zygote's leaf for ever.
        """
        leaf = None
        if child.leaf is None and self._policy.cgroups:
            leaf = cgroups().leaf(self._policy.limits, killed_otherwise=True)
        if leaf is None:
            return
        try:
            await asyncio.to_thread(_move_alone, leaf, child)
        except BaseException as error:
            leaf.discard()
            if isinstance(error, OSError):
                raise LaunchError("cgroup", error.strerror or "", errno=error.errno or 0) from error
            raise
        child.leaf = leaf

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
