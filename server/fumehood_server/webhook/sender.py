"""Delivery of approvals that wait, at least once each: a task that follows the desk, and a few that post.

Nothing is kept of it: after a restart all that wait are sent again, under the ids that they had.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from fumehood_server.errors import JournalUnavailableError
from fumehood_server.model.approvals import Approval, ApprovalState
from fumehood_server.policy import ApprovalDesk
from fumehood_server.telemetry import get_logger
from fumehood_server.webhook.approval_json import message_id
from fumehood_server.webhook.delivery_log import DeliveryLog
from fumehood_server.webhook.receiver import NotDeliveredError, ReceiverClient

POSTS = 8
"""At a time."""
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 300.0
"""Each wait is twice the one before, up to this."""
_JITTER = 0.25
_MOST_DOUBLINGS = 16
_JOURNAL_RETRY_S = 1.0
_PORTION = 64


@dataclass(slots=True, eq=False)
class _Message:
    """One that is not decided yet."""

    approval_id: str
    message_id: str
    failures: int = 0
    timer: asyncio.TimerHandle | None = None


class ApprovalSender:
    """An async context manager; for one event loop. Calls never wait for it.

    What it holds of each approval that waits is its id, so the desk's own bound (`max_open`) bounds it.
    """

    def __init__(self, desk: ApprovalDesk, client: ReceiverClient, log: DeliveryLog) -> None:
        """Send what is open on this desk."""
        self._desk = desk
        self._client = client
        self._log = log
        self._messages: dict[str, _Message] = {}
        """By the id of the approval. Delivered ones stay until the approval is decided."""
        self._queue: asyncio.Queue[_Message] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Begin with those that are open."""
        names = ["webhook follower", *(f"webhook sender {number}" for number in range(POSTS))]
        self._tasks = [
            asyncio.create_task(self._send_all() if index else self._follow(), name=name)
            for index, name in enumerate(names)
        ]
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End what is under way: the next start sends it again."""
        for each in self._tasks:
            each.cancel()
        await asyncio.wait(self._tasks)
        for message in self._messages.values():
            _stop(message)

    async def _follow(self) -> None:
        """Take up what the desk has, and each change of it."""
        seen: int | None = None
        while True:
            try:
                if seen is None:
                    seen = await self._take_up_open()
                while True:
                    seen, changed = await self._desk.changed(seen)
                    self._take_up(changed)
            except JournalUnavailableError:
                pass
            except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave approvals unsent for good
                get_logger().error("approvals_not_followed", exc_info=exc)
            await asyncio.sleep(_JOURNAL_RETRY_S)

    async def _take_up_open(self) -> int:
        """Returns the position to go on after. Raises JournalUnavailableError."""
        seen = await self._desk.size() - 1
        after = -1
        while True:
            after, some = await self._desk.open(after, limit=_PORTION)
            if not some:
                return seen
            self._take_up(some)

    def _take_up(self, approvals: Sequence[Approval]) -> None:
        for each in approvals:
            known, wanted = self._messages.get(each.approval_id), message_id(each)
            is_pending = each.state is ApprovalState.PENDING
            if known is not None and not (is_pending and known.message_id == wanted):
                _stop(self._messages.pop(each.approval_id))
                known = None
            if is_pending and known is None:
                self._messages[each.approval_id] = message = _Message(each.approval_id, wanted)
                self._queue.put_nowait(message)

    async def _send_all(self) -> None:
        while True:
            message = await self._queue.get()
            message.timer = None
            if self._messages.get(message.approval_id) is not message:
                continue  # decided, or other arguments are asked for now
            try:
                await self._send(message)
            except NotDeliveredError as exc:
                self._log.failed(exc.outcome, str(exc))
            except JournalUnavailableError as exc:
                self._log.failed("journal", f"the journal can't be read: {exc}")
            except Exception as exc:  # noqa: BLE001 - a fault of ours in one must not end what sends all
                get_logger().error("approval_not_sent", approval_id=message.approval_id, exc_info=exc)
            else:
                continue
            self._retry_later(message)

    async def _send(self, message: _Message) -> None:
        """Send it as it is now, unless it is decided or changed, which the follower is told as well."""
        found = await self._desk.find(message.approval_id)
        if found is None or found.state is not ApprovalState.PENDING or message_id(found) != message.message_id:
            return
        await self._client.post(message.message_id, found)
        self._log.delivered()

    def _retry_later(self, message: _Message) -> None:
        if self._messages.get(message.approval_id) is not message:
            return
        wait_s = min(FIRST_RETRY_S * 2 ** min(message.failures, _MOST_DOUBLINGS), LAST_RETRY_S)
        wait_s *= 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - spreads load, and is no secret
        message.failures += 1
        message.timer = asyncio.get_running_loop().call_later(wait_s, self._queue.put_nowait, message)


def _stop(message: _Message) -> None:
    if message.timer is not None:
        message.timer.cancel()
        message.timer = None


__all__ = ["FIRST_RETRY_S", "LAST_RETRY_S", "POSTS", "ApprovalSender"]
