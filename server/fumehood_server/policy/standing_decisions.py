"""Who may list and revoke standing approvals: whoever may approve calls of the tool that one is for."""

from __future__ import annotations

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.approvals import ApprovalRefusedError
from fumehood_server.model.caller import Caller, CallerRights
from fumehood_server.model.standing import Standing
from fumehood_server.policy.decisions import (
    MAX_APPROVAL_ID_BYTES,
    MAX_REASON_BYTES,
    check_length,
    may_approve,
    refusal_of,
    unavailable_refused,
)
from fumehood_server.policy.desk import ApprovalDesk


class StandingDecisions:
    """What callers may do with the standing approvals of a sidecar. Each refusal is a RefusedError."""

    __slots__ = ("_desk", "_rights")

    def __init__(self, desk: ApprovalDesk, rights: CallerRights) -> None:
        """By the rules about callers that are in force when each is asked."""
        self._desk = desk.standing
        self._rights = rights

    def may_see(self, found: Standing, by: Caller) -> bool:
        """Whether it is this one's to list and revoke."""
        return may_approve(self._rights, by, found.subject.tool)

    async def find(self, standing_id: str, by: Caller) -> Standing:
        """One that the caller may see.

        Raises:
            RefusedError: there is none, or it can't be read.
        """
        check_length("standing_id", standing_id, MAX_APPROVAL_ID_BYTES)
        with unavailable_refused():
            found = await self._desk.get(standing_id)
        if found is None or not self.may_see(found, by):
            text = f'there is no standing approval "{standing_id[:128]}"'
            raise RefusedError(Refusal(RefusalReason.APPROVAL_NOT_FOUND, text))
        return found

    async def revoke(self, standing_id: str, by: Caller, reason: str) -> Standing:
        """Take one back.

        Raises:
            RefusedError: there is none, it is revoked already, or it can't be recorded.
        """
        check_length("reason", reason, MAX_REASON_BYTES)
        found = await self.find(standing_id, by)
        with unavailable_refused():
            try:
                return await self._desk.revoke(found, by, reason)
            except ApprovalRefusedError as exc:
                raise refusal_of(exc) from exc


__all__ = ["StandingDecisions"]
