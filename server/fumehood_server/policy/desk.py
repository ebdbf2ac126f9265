"""Approvals of one sidecar: asks the journal for each change, wakes who waits for one, and ends those out of time.

The journal is what they lie in. Here is only which of them are open, and until when: one timer for all, and a future
for each caller that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.approval_changes import Change, Decide, Expire, Request
from fumehood_server.model.approval_events import ApprovalExpired
from fumehood_server.model.approvals import (
    Approval,
    ApprovalRefusedError,
    ApprovalState,
    Asked,
    Choice,
    Decision,
    Subject,
)
from fumehood_server.model.bindings import Bindings
from fumehood_server.model.caller import Authentication, Caller
from fumehood_server.model.events import About, Event
from fumehood_server.model.policy import Requirement
from fumehood_server.model.standing import Standing, StandingTerms
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.policy.approval_documents import ID_BYTES, about_of, decided_event, new_approval, requested_event
from fumehood_server.policy.approval_waits import ApprovalWaits
from fumehood_server.policy.interfaces import ApprovalJournal, DeskSettings, StandingJournal
from fumehood_server.policy.open_approvals import OpenApprovals
from fumehood_server.policy.standing_desk import StandingDesk, granted_by
from fumehood_server.policy.standing_terms import AskedTerms, checked
from fumehood_server.telemetry import get_logger

POLL_S = 0.5
"""Between two looks for what other sidecars have decided, while something is open here."""
CLOCK_S = 10.0
"""Between two looks at the clock, while something is open here: it may be set, or the machine sleep."""
RETRY_S = 1.0
"""Before the journal is tried again."""
_US = 1_000_000
_CHANGES = 256
_SIDECAR = Caller(name="", authenticated_by=Authentication.NONE, connection="sidecar")


class ApprovalDesk:
    """Where calls ask for approvals, and where these are decided and expire, each by a change in the journal.

    An async context manager, which owns the task that ends those out of time; for one event loop.
    """

    def __init__(
        self,
        journal: ApprovalJournal,
        standing: StandingJournal,
        settings: Callable[[], DeskSettings],
        bindings: Bindings | None = None,
    ) -> None:
        """`settings` gives those in force. `bindings` tells which approvals are void; None: none is."""
        self._journal = journal
        self.standing = StandingDesk(standing, journal)
        self._settings = settings
        self._bindings = bindings
        self._open = OpenApprovals()
        self._waits = ApprovalWaits()
        self._wake = asyncio.Event()
        self._has_changed = False
        self._changes = asyncio.Event()
        self._seen = -1
        """Position up to which changes were read."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin with those that are open."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Leave them open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # For calls.

    @property
    def grants(self) -> int:
        """How many standing approvals it has heard of: see `decided`."""
        return self._waits.grants

    async def obtain(self, asked: Asked) -> Approval:
        """The approval of a call: the one that it was given or waits for, else a new one.

        One that is used is that of a call which another sidecar has. One for anything else, as of a definition that has
        changed since, is withdrawn.

        Raises:
            JournalUnavailableError: it can't be had or recorded.
            ApprovalRefusedError: too many are open.
            RefusedError: the call's id is that of another caller's call.
        """
        found = await self._journal.of_call(asked.call_id)
        if found is not None and found.asked.caller != asked.subject.caller:
            text = f'the id "{asked.call_id}" is that of another caller\'s call: choose another id'
            raise RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))
        if found is not None and found.state.is_open and found.expires_us <= STEADY_CLOCK.now_us():
            await self._expire()
            found = await self._journal.of_call(asked.call_id)
        if found is not None and found.state is ApprovalState.USED and self._may_run_elsewhere(found):
            return found
        if found is not None and found.asked == asked.subject and found.state is not ApprovalState.USED:
            self._note(found)
            return found
        if found is not None and found.state.is_open:
            with contextlib.suppress(ApprovalRefusedError):
                await self.withdraw(found, "the call has changed since: arguments, definition, plugin or policy")
        settings = self._settings()
        if len(self._open) >= settings.max_open:
            raise ApprovalRefusedError("too_many", f"{settings.max_open} approvals are open, as many as may be")
        if self._open.count_of(asked.subject) >= max(1, settings.max_open // 2):
            raise ApprovalRefusedError("too_many", "half of the approvals that may be open are this caller's")
        with self._open.place_for(asked.subject):
            return await self._request(asked, settings)

    def _may_run_elsewhere(self, used: Approval) -> bool:
        """Whether another sidecar may have the call, whose id stands for it for some time after its start."""
        # It began before the approval's time was over. Ids of this sidecar's calls were looked up before.
        return self._journal.shared and used.expires_us + self._journal.window_us > STEADY_CLOCK.now_us()

    async def _request(self, asked: Asked, settings: DeskSettings) -> Approval:
        approval = new_approval(asked, settings, now_us=STEADY_CLOCK.now_us())
        event, kept = requested_event(approval, asked)
        return await self._change(Request(approval), event, about_of(approval), kept)

    async def decided(self, approval: Approval, grants: int) -> Approval:
        """See `fumehood_server.model.approvals.Approvals`."""
        if approval.state is not ApprovalState.PENDING or grants != self.grants:
            return approval
        with self._waits.future_of(approval) as future:
            current = await self._journal.find(approval.approval_id)  # decided before anybody waited here
            if current is not None:
                self._note(current)
            if self.void_reason(approval):  # as it became before anybody waited here
                return approval
            found = await future
        return found if found.approval_id == approval.approval_id else approval

    def used(self, approval: Approval) -> None:
        """A call has begun with it."""
        self._note(replace(approval, state=ApprovalState.USED))

    async def of_call(self, call_id: str) -> Approval | None:
        """The newest of a call. Raises JournalUnavailableError."""
        return await self._journal.of_call(call_id)

    async def withdraw(self, approval: Approval, reason: str) -> Approval:
        """Take it back on the sidecar's own word. Raises as `decide`."""
        return await self.decide(approval, Choice.WITHDRAW, _SIDECAR, reason=reason, digest=approval.digest)

    # For who decides.

    async def decide(
        self,
        approval: Approval,
        choice: Choice,
        by: Caller,
        *,
        reason: str,
        digest: str,
        edited: Subject | None = None,
        edited_json: str = "",
        requirements: tuple[Requirement, ...] = (),
        terms: StandingTerms | None = None,
    ) -> Approval:
        """Record somebody's decision of what has this digest. Whether they may decide was asked before.

        `terms`: of a standing approval that is to come of it.

        Raises:
            ApprovalRefusedError: it is decided, withdrawn, used or expired, or no longer what they saw.
            JournalUnavailableError: it can't be recorded.
        """
        decision = Decision(
            choice=choice,
            by=by.name,
            authenticated_by=by.authenticated_by.value,
            connection=by.connection,
            reason=reason,
            digest=digest,
            at_us=STEADY_CLOCK.now_us(),
            edited=edited,
            edited_json=edited_json,
            standing_id="" if terms is None else f"standing-{os.urandom(ID_BYTES).hex()}",
        )
        event, kept = decided_event(approval, decision)
        change = Decide(approval.approval_id, decision, requirements)
        granted = None if terms is None else granted_by(decision, approval, terms)
        return await self._change(change, event, about_of(approval), kept, granted=granted)

    async def terms(self, asked: AskedTerms, approval: Approval) -> StandingTerms:
        """The terms of a standing approval, by the settings in force. Raises TermsError."""
        return await checked(asked, approval, now_us=STEADY_CLOCK.now_us(), max_s=self._settings().standing_max_s)

    def void_reason(self, approval: Approval) -> str:
        """Why an open one lets nothing begin, as this sidecar has its tool and the rules. Empty: it is not void.

        One that answers a question is good for as long as the call that asks runs, which goes on as it began.
        """
        if not approval.state.is_open or approval.question:
            return ""
        return self.change_since(approval.asked)

    def change_since(self, subject: Subject) -> str:
        """What has changed of what an approval is bound to, but for arguments and caller, in words. Empty: nothing."""
        return "" if self._bindings is None else self._bindings.change_since(subject)

    @property
    def is_shared(self) -> bool:
        """Whether calls of other sidecars ask here too, which may have tools and rules of their own."""
        return self._journal.shared

    def ask_again(self, approval: Approval) -> bool:
        """Have the call ask anew that waits here for one that is void. Whether one does."""
        return self._waits.ask_again(approval)

    def look_again(self) -> None:
        """Tools or rules have changed: soon, each call that waits here for one that is void by now asks anew."""
        self._has_changed = True
        self._wake.set()

    async def find(self, approval_id: str) -> Approval | None:
        """One of them. Raises JournalUnavailableError."""
        return await self._journal.find(approval_id)

    async def open(self, after: int, *, limit: int) -> tuple[int, Sequence[Approval]]:
        """Some of those that wait or can be used, the longest unchanged first, and the position to go on after.

        Empty where there are no more. Raises JournalUnavailableError.
        """
        return await self._journal.open(after, limit=limit)

    async def size(self) -> int:
        """A position that is after every change so far. Raises JournalUnavailableError."""
        return await self._journal.size()

    async def changed(self, after: int) -> tuple[int, Sequence[Approval]]:
        """Those that were changed after a position, once there are any. Raises JournalUnavailableError."""
        while True:
            self._changes.clear()
            position, found = await self._journal.changed(after, limit=_CHANGES)
            if found:
                return position, found
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S if self._journal.shared else None):
                    await self._changes.wait()

    # Behind them.

    async def _change(
        self,
        change: Change,
        event: Event,
        about: About,
        payloads: tuple[bytes, ...] = (),
        *,
        granted: Standing | None = None,
    ) -> Approval:
        approval = await self._journal.change(change, event, about, payloads, granted=granted)
        self._note(approval)
        return approval

    def _note(self, approval: Approval) -> None:
        """Keep when it expires, and wake who waits for it or for one like it."""
        if self._open.note(approval) or (self._journal.shared and approval.state.is_open):
            self._wake.set()
        self._waits.wake(approval)
        self._changes.set()

    async def _run(self) -> None:
        is_loaded = False
        while True:
            self._wake.clear()
            try:
                if self._has_changed:
                    self._has_changed = False
                    await self._wake_void()
                if not is_loaded:
                    await self._load()
                    is_loaded = True
                if self._journal.shared:
                    await self._read_changes()
                await self._expire()
            except JournalUnavailableError:
                await asyncio.sleep(RETRY_S)
                continue
            except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave approvals without their end
                get_logger().error("approvals_not_looked_after", exc_info=exc)
                await asyncio.sleep(RETRY_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._sleep_s()):
                    await self._wake.wait()

    async def _load(self) -> None:
        self._seen = await self._journal.size() - 1
        after = -1
        while True:
            after, found = await self._journal.open(after, limit=_CHANGES)
            if not found:
                return
            for each in found:
                self._note(each)

    async def _read_changes(self) -> None:
        while True:
            self._seen, found = await self._journal.changed(self._seen, limit=_CHANGES)
            for each in found:
                self._note(each)
            if not found:
                return

    async def _wake_void(self) -> None:
        for count, each in enumerate(self._waits.approvals(), start=1):
            if self.void_reason(each):
                self._waits.ask_again(each)
            if count % _CHANGES == 0:
                await asyncio.sleep(0)

    def _sleep_s(self) -> float | None:
        """Until something is to be done. None: nothing is."""
        due = self._open.next_due()
        if due is None:
            return None
        until_s = max((due[0] - STEADY_CLOCK.now_us()) / _US, 0.001)
        return min(until_s, POLL_S if self._journal.shared else CLOCK_S)

    async def _expire(self) -> None:
        while (due := self._open.next_due()) is not None and due[0] <= STEADY_CLOCK.now_us():
            approval_id = due[1]
            found = await self._journal.find(approval_id)
            if found is None:
                self._open.forget(approval_id)
                continue
            if found.state.is_open and found.expires_us == due[0]:
                event = ApprovalExpired(approval_id=approval_id, was=found.state.value)
                try:
                    await self._change(Expire(approval_id), event, about_of(found))
                    continue
                except ApprovalRefusedError:  # somebody else was quicker
                    found = await self._journal.find(approval_id) or found
            self._note(found)


__all__ = ["ApprovalDesk"]
