"""Condition variables of approvals: futures of the calls that wait for one, or for a standing one like it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from fumehood_server.model.approvals import Approval, ApprovalState
from fumehood_server.model.standing import binding_of


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """One call that waits."""

    approval: Approval
    """As it was when the call came."""
    future: asyncio.Future[Approval]

    def end(self, found: Approval) -> None:
        if not self.future.done():
            self.future.set_result(found)


class ApprovalWaits:
    """For one event loop."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self.grants = 0
        """How many standing approvals it was told of."""
        self._waiting: dict[str, set[_Wait]] = {}
        self._alike: dict[str, set[_Wait]] = {}
        """The same by what a standing approval for them would be bound to."""

    @contextlib.contextmanager
    def future_of(self, approval: Approval) -> Iterator[asyncio.Future[Approval]]:
        """Gets this approval once it is decided, or one like it that a standing one has come of, within the block."""
        wait = _Wait(approval, asyncio.get_running_loop().create_future())
        with _listed(self._waiting, approval.approval_id, wait), _listed(self._alike, _binding(approval), wait):
            yield wait.future

    def approvals(self) -> list[Approval]:
        """Those that calls wait for, each as it was when its call came."""
        return [each.approval for waiting in self._waiting.values() for each in waiting]

    def wake(self, approval: Approval) -> None:
        """It may have changed: wake who waits for it or for one like it."""
        if approval.state is not ApprovalState.PENDING:
            for each in self._waiting.get(approval.approval_id, ()):
                each.end(approval)
        if any(each.standing_id for each in approval.decisions):
            self.grants += 1
            for each in self._alike.get(_binding(approval), ()):
                each.end(approval)

    def ask_again(self, approval: Approval) -> bool:
        """Nothing can come of it any more: have the call that waits for it look for another. Whether one waits here."""
        waiting = [each for each in self._waiting.get(approval.approval_id, ()) if not each.future.done()]
        for each in waiting:
            each.end(approval)
        return bool(waiting)


def _binding(approval: Approval) -> str:
    return binding_of(approval.asked)


@contextlib.contextmanager
def _listed(waiting: dict[str, set[_Wait]], key: str, wait: _Wait) -> Iterator[None]:
    some = waiting.setdefault(key, set())
    some.add(wait)
    try:
        yield
    finally:
        some.discard(wait)
        if not some and waiting.get(key) is some:
            del waiting[key]
