"""Condition variables of approvals: futures of the calls that wait for one, or for a standing one like it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from fumehood_server.model.approvals import Approval, ApprovalState
from fumehood_server.model.standing import binding_of


class ApprovalWaits:
    """For one event loop."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self.grants = 0
        """How many standing approvals it was told of."""
        self._waiting: dict[str, set[asyncio.Future[Approval]]] = {}
        self._alike: dict[str, set[asyncio.Future[Approval]]] = {}
        """The same by what a standing approval for them would be bound to."""

    @contextlib.contextmanager
    def future_of(self, approval: Approval) -> Iterator[asyncio.Future[Approval]]:
        """Gets this approval once it is decided, or one like it that a standing one has come of, within the block."""
        future: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        with _listed(self._waiting, approval.approval_id, future), _listed(self._alike, _binding(approval), future):
            yield future

    def wake(self, approval: Approval) -> None:
        """It may have changed: wake who waits for it or for one like it."""
        if approval.state is not ApprovalState.PENDING:
            for each in self._waiting.get(approval.approval_id, ()):
                if not each.done():
                    each.set_result(approval)
        if any(each.standing_id for each in approval.decisions):
            self.grants += 1
            for each in self._alike.get(_binding(approval), ()):
                if not each.done():
                    each.set_result(approval)

    def ask_again(self, approval: Approval) -> bool:
        """Nothing can come of it any more: have the call that waits for it look for another. Whether one waits here."""
        waiting = [each for each in self._waiting.get(approval.approval_id, ()) if not each.done()]
        for each in waiting:
            each.set_result(approval)
        return bool(waiting)


def _binding(approval: Approval) -> str:
    return binding_of(approval.asked)


@contextlib.contextmanager
def _listed(
    waiting: dict[str, set[asyncio.Future[Approval]]], key: str, future: asyncio.Future[Approval]
) -> Iterator[None]:
    some = waiting.setdefault(key, set())
    some.add(future)
    try:
        yield
    finally:
        some.discard(future)
        if not some and waiting.get(key) is some:
            del waiting[key]
