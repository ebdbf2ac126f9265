"""Standing approvals of one sidecar: given with a decision, looked for by calls, listed and revoked.

All of it lies in the journal, and is read there each time: so what another sidecar has given or revoked counts here at
once. One expires by its time alone, and nothing has to end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fumehood_server.errors import CallTakenError
from fumehood_server.model.approvals import Approval, ApprovalState, Asked, Decision
from fumehood_server.model.caller import Caller
from fumehood_server.model.events import About
from fumehood_server.model.standing import (
    Revocation,
    Standing,
    StandingTerms,
    StandingUse,
    UsedStanding,
    ValuesOf,
    binding_of,
)
from fumehood_server.model.standing_changes import Revoke, is_for
from fumehood_server.model.standing_events import StandingRevoked
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.policy.interfaces import ApprovalJournal, StandingJournal
from fumehood_server.policy.standing_terms import MAX_COST, cost, fit

_MOST_ALIKE = 64
"""Of one tool and caller that are looked at for a call. Where there are more, it may have to ask."""
_UNDECIDED = frozenset({ApprovalState.PENDING, ApprovalState.USED})


class StandingDesk:
    """See `fumehood_server.model.standing.StandingApprovals`. For one event loop."""

    def __init__(self, journal: StandingJournal, approvals: ApprovalJournal) -> None:
        """`approvals` has the approvals of calls."""
        self._journal = journal
        self._approvals = approvals

    # For calls.

    async def find(
        self, asked: Asked, arguments_json: str, *, but: frozenset[str], values: ValuesOf | None = None
    ) -> StandingUse | None:
        """See `StandingApprovals`."""
        earlier = await self._approvals.of_call(asked.call_id)
        if earlier is not None and earlier.asked == asked.subject and earlier.state not in _UNDECIDED:
            return None
        if earlier is not None and earlier.state is ApprovalState.USED and self._approvals.shared:
            return None  # another sidecar may have the call
        found = await self._journal.some(
            binding=binding_of(asked.subject), open_at_us=STEADY_CLOCK.now_us(), limit=_MOST_ALIKE
        )
        session_id, left = asked.context.get("session_id", ""), MAX_COST
        rules = tuple(each.rule for each in asked.requirements)
        suitable = [
            each
            for each in sorted(found, key=lambda each: each.until_us)
            if each.standing_id not in but and is_for(each, asked.subject, session_id=session_id, rules=rules)
        ]
        pointers = frozenset(one.pointer for each in suitable for one in each.conditions)
        arguments = await values(pointers) if values is not None and pointers else arguments_json
        for each in suitable:
            left -= cost(each.conditions, arguments_json)
            if left >= 0 and fit(each.conditions, arguments):
                waiting = earlier if earlier is not None and earlier.state.is_open else None
                return StandingUse(
                    standing=each, subject=asked.subject, session_id=session_id, rules=rules, waiting=waiting
                )
        return None

    async def of_call(self, call_id: str) -> UsedStanding | None:
        """See `StandingApprovals`."""
        return await self._journal.of_call(call_id)

    async def check_not_begun(self, asked: Asked) -> None:
        """See `StandingApprovals`. Ids of this sidecar's own calls were looked up before."""
        if not self._approvals.shared:
            return
        found = await self._journal.of_call(asked.call_id)
        if found is None or found.digest != asked.subject.digest:
            return
        if found.at_us + self._approvals.window_us > STEADY_CLOCK.now_us():
            raise CallTakenError(f"{found.standing_id} has let it begin")

    # For who decides.

    async def get(self, standing_id: str) -> Standing | None:
        """One of them. Raises JournalUnavailableError."""
        return await self._journal.find(standing_id)

    async def some(self, after: str, *, is_open: bool, limit: int) -> Sequence[Standing]:
        """The first after an id, in the order of ids. `is_open`: those alone that can be used.

        Raises JournalUnavailableError.
        """
        open_at_us = STEADY_CLOCK.now_us() if is_open else None
        return await self._journal.some(open_at_us=open_at_us, after=after, limit=limit)

    async def revoke(self, found: Standing, by: Caller, reason: str) -> Standing:
        """Take one back: no call begins with it from now on, and none that has is sent to a worker for the first time.

        Raises:
            ApprovalRefusedError: it is revoked already.
            JournalUnavailableError: it can't be recorded.
        """
        revocation = Revocation(
            by=by.name,
            authenticated_by=by.authenticated_by.value,
            connection=by.connection,
            reason=reason,
            at_us=STEADY_CLOCK.now_us(),
        )
        event = StandingRevoked(
            standing_id=found.standing_id,
            by=revocation.by,
            authenticated_by=revocation.authenticated_by,
            connection=revocation.connection,
            reason=reason,
            at_us=revocation.at_us,
        )
        about = About(
            call_id=found.call_id, run_id=found.run_id, tool=found.subject.tool, plugin=found.plugin, numbered=False
        )
        return await self._journal.change(Revoke(found.standing_id, revocation), event, about)


def granted_by(decision: Decision, approval: Approval, terms: StandingTerms) -> Standing:
    """The standing approval that comes of a decision."""
    subject = approval.subject
    return Standing(
        standing_id=decision.standing_id,
        approval_id=approval.approval_id,
        call_id=approval.call_id,
        run_id=approval.run_id,
        asked_from=approval.connection,
        plugin=approval.plugin,
        side_effects=approval.side_effects,
        subject=replace(subject, arguments_sha256="") if terms.conditions else subject,
        rules=tuple(each.rule for each in approval.requirements),
        session_id=approval.context.get("session_id", "") if terms.is_for_session else "",
        conditions=terms.conditions,
        calls=terms.calls,
        granted_us=decision.at_us,
        until_us=terms.until_us,
        by=decision.by,
        authenticated_by=decision.authenticated_by,
        connection=decision.connection,
        reason=decision.reason,
    )


__all__ = ["StandingDesk", "granted_by"]
