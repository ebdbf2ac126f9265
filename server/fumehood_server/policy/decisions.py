"""Decisions about approvals: who may see and decide one. The one way in for gRPC and for the webhook."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator

from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, Choice, is_same, may_count
from fumehood_server.model.caller import Authentication, Caller, CallerRights
from fumehood_server.model.standing import StandingTerms
from fumehood_server.policy.desk import ApprovalDesk
from fumehood_server.policy.interfaces import EditedApproval
from fumehood_server.policy.standing_terms import AskedTerms, TermsError

MAX_APPROVAL_ID_BYTES = 256
MAX_REASON_BYTES = 4096
_CLOSED = frozenset({"decided", "denied", "expired", "withdrawn", "used", "approved", "revoked"})

Edit = Callable[[Approval], Awaitable[EditedApproval]]
"""Puts other arguments in place of the approval's. Raises ApprovalRefusedError."""


class Decisions:
    """What callers may do with the approvals of a sidecar. Each refusal is a RefusedError."""

    __slots__ = ("_desk", "_rights")

    def __init__(self, desk: ApprovalDesk, rights: CallerRights) -> None:
        """By the rules about callers that are in force when each is asked."""
        self._desk = desk
        self._rights = rights

    def may_see(self, found: Approval, by: Caller) -> bool:
        """Whether it is this one's to decide, or to wait for: arguments are nobody else's business."""
        return may_approve(self._rights, by, found.asked.tool) or is_same(found.asker, by.name, by.connection)

    async def find(self, approval_id: str, by: Caller) -> Approval:
        """One that the caller may see.

        Raises:
            RefusedError: there is none, or it can't be read.
        """
        check_length("approval_id", approval_id, MAX_APPROVAL_ID_BYTES)
        with unavailable_refused():
            found = await self._desk.find(approval_id)
        if found is None or not self.may_see(found, by):
            text = f'there is no approval "{approval_id[:128]}"'
            raise RefusedError(Refusal(RefusalReason.APPROVAL_NOT_FOUND, text))
        return found

    async def decide(
        self,
        approval_id: str,
        choice: Choice,
        by: Caller,
        *,
        digest: str,
        reason: str,
        edit: Edit | None = None,
        standing: AskedTerms | None = None,
    ) -> Approval:
        """Record the caller's decision. `digest` is what they saw: a withdrawal may leave it empty.

        `standing`: have an approval stand for later calls, without an edit.

        Raises:
            RefusedError: they may not, it can't be decided so, or it can't be recorded.
        """
        check_length("reason", reason, MAX_REASON_BYTES)
        if choice is not Choice.WITHDRAW and not digest:
            raise _invalid("digest is required: that of the approval as it was looked at")
        found = await self.find(approval_id, by)
        self._check_allowed(found, by, choice)
        if choice is Choice.APPROVE:
            self._check_not_void(found)
        terms = None if standing is None else await self._terms(found, standing)
        with unavailable_refused():
            try:
                if edit is None:
                    return await self._desk.decide(
                        found, choice, by, reason=reason, digest=digest or found.digest, terms=terms
                    )
                edited = await edit(found)
                return await self._desk.decide(
                    found,
                    choice,
                    by,
                    reason=reason,
                    digest=digest,
                    edited=edited.subject,
                    edited_json=edited.arguments_json,
                    requirements=edited.requirements,
                )
            except ApprovalRefusedError as exc:
                raise refusal_of(exc) from exc

    def _check_allowed(self, found: Approval, by: Caller, choice: Choice) -> None:
        is_asker = is_same(found.asker, by.name, by.connection) or (not found.asked.caller and not by.name)
        if choice is Choice.WITHDRAW and is_asker:
            return
        if not may_approve(self._rights, by, found.asked.tool):
            who = by.name or f"a caller without a name on {by.connection}"
            text = f"{who} may not approve calls of {found.asked.tool}"
            raise RefusedError(Refusal(RefusalReason.APPROVAL_NOT_ALLOWED, text, {"lacks": "right"}))
        if choice is Choice.APPROVE and not may_count(found, by.name, by.connection):
            rules = ", ".join(each.rule for each in found.requirements)
            text = (
                f"an approval by {by.name or 'a caller without a name'} does not count for this call (rules: {rules})"
            )
            refusal = Refusal(RefusalReason.APPROVAL_NOT_ALLOWED, text, {"rules": rules, "lacks": "approver"})
            raise RefusedError(refusal)

    def _check_not_void(self, found: Approval) -> None:
        why = "" if self._desk.is_shared else self._desk.void_reason(found)
        if not why:
            return
        waits = self._desk.ask_again(found)
        then = "its call, which waits, asks for another" if waits else "its call asks for another when it is sent again"
        metadata = {"state": "void", "waits": str(waits).lower()}
        text = f"{found.approval_id} is void: {why}; {then}"
        raise RefusedError(Refusal(RefusalReason.APPROVAL_CHANGED, text, metadata))

    async def _terms(self, found: Approval, asked: AskedTerms) -> StandingTerms:
        strict = [each.rule for each in found.requirements if not each.standing]
        if strict:
            rules = ", ".join(strict)
            text = (
                f"{found.approval_id} can be approved for its call alone: no `standing = true` in what asks for it "
                f"({rules})"
            )
            refusal = Refusal(RefusalReason.APPROVAL_NOT_ALLOWED, text, {"rules": rules, "lacks": "standing"})
            raise RefusedError(refusal)
        try:
            return await self._desk.terms(asked, found)
        except TermsError as exc:
            raise _invalid(f"standing: {exc}") from exc


def may_approve(rights: CallerRights, by: Caller, tool: str) -> bool:
    """Whether the rules about callers say so. Who has shown nothing of who it is may not, whatever they say."""
    return by.authenticated_by is not Authentication.NONE and rights.may_approve(by, tool)


@contextlib.contextmanager
def unavailable_refused() -> Iterator[None]:
    """Refuse where the journal can't be used."""
    try:
        yield
    except JournalUnavailableError as exc:
        text = f"approvals can't be read or recorded: {exc}"
        raise RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, text)) from exc


def refusal_of(error: ApprovalRefusedError) -> RefusedError:
    """Why an approval, or a standing one, can't be changed so."""
    if error.reason in {"invalid", "not_permitted"}:
        return _invalid(str(error))
    if error.decided is not None:
        by = error.decided
        who = {"decided_by": by.by or by.connection, "authenticated_by": by.authenticated_by}
        return RefusedError(Refusal(RefusalReason.APPROVAL_CLOSED, str(error), {"state": error.reason, **who}))
    reason = RefusalReason.APPROVAL_CLOSED if error.reason in _CLOSED else RefusalReason.APPROVAL_CHANGED
    if error.reason == "not_found":
        reason = RefusalReason.APPROVAL_NOT_FOUND
    elif error.reason == "not_standing":
        reason = RefusalReason.APPROVAL_NOT_ALLOWED
    return RefusedError(Refusal(reason, str(error), {"state": error.reason}))


def check_length(name: str, value: str, limit_bytes: int) -> None:
    """Raises RefusedError: a text is too long."""
    if len(value.encode(errors="surrogatepass")) > limit_bytes:
        raise _invalid(f"{name} is longer than {limit_bytes} bytes")


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))


__all__ = [
    "MAX_APPROVAL_ID_BYTES",
    "MAX_REASON_BYTES",
    "Decisions",
    "Edit",
    "check_length",
    "may_approve",
    "refusal_of",
    "unavailable_refused",
]
