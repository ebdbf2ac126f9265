"""Compares the table of approvals with the events that changed them, in their order, a few rows at a time in memory.

Each row names the event that changed it last, and each event of an approval has a row that it, or a later one, changed.
One that is used up was changed by the start of its call, or by the answer of its question, right after which an event
says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.store import ApprovalRow, Reader, StoredEvent
from fumehood_server.model.approval_changes import is_satisfied
from fumehood_server.model.approval_events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalUsed,
    ApprovalWithdrawn,
)
from fumehood_server.model.approvals import Approval, ApprovalState, Choice, Decision
from fumehood_server.model.events import ExecuteStart
from fumehood_server.model.question_events import QuestionAnswered

_ROWS = 8
"""Of one read: an open approval may hold its arguments twice, 1 MiB each."""
_KINDS = frozenset(
    each.TYPE for each in (ApprovalRequested, ApprovalDecided, ApprovalWithdrawn, ApprovalExpired, ApprovalUsed)
)
_CHANGING = _KINDS - {ApprovalUsed.TYPE} | {ExecuteStart.TYPE, QuestionAnswered.TYPE}
_CLOSED_BY = {
    ApprovalWithdrawn.TYPE: ApprovalState.WITHDRAWN,
    ApprovalExpired.TYPE: ApprovalState.EXPIRED,
    ExecuteStart.TYPE: ApprovalState.USED,
    QuestionAnswered.TYPE: ApprovalState.USED,
}


class ApprovalChecks:
    """For one pass over all events, in order."""

    def __init__(self, reader: Reader, removed_up_to: int) -> None:
        """`removed_up_to`: events before this position may be removed, and with them rows of closed approvals."""
        self._reader = reader
        self._removed_up_to = removed_up_to
        self._rows = self._read_rows()
        self._next: ApprovalRow | None = next(self._rows, None)
        self._changed_at: Mapping[str, int] = {}

    def begin(self, events: Sequence[StoredEvent]) -> None:
        """These are checked next."""
        ids = {str(decode(each.body)["data"]["approval_id"]) for each in events if each.type in _KINDS}
        self._changed_at = self._reader.approval_positions(ids)

    def problem(self, event: StoredEvent, fields: Mapping[str, Any]) -> str:
        """What is wrong with the rows of which this event speaks. Empty: nothing is."""
        row = self._row_at(event.position)
        if row is not None and not (event.type in _CHANGING and self._agrees(row, event, fields)):
            return "is of an approval that the list of approvals shows otherwise, or of none"
        if event.type not in _KINDS:
            return ""
        changed_at = self._changed_at.get(fields["data"]["approval_id"])
        if changed_at is None and event.position < self._removed_up_to:
            return ""
        at = event.position - (event.type == ApprovalUsed.TYPE)
        if changed_at is None or changed_at < at or (changed_at == event.position) != (row is not None):
            return "is of an approval that the list of approvals shows as it was before, or not at all"
        return ""

    def rest(self) -> str:
        """The same once all events were checked."""
        return "" if self._next is None else "there are approvals of which no event speaks"

    def _row_at(self, position: int) -> ApprovalRow | None:
        """The row that the event of this position changed last."""
        row = self._next
        while row is not None and row.is_open and 0 <= row.position < min(position, self._removed_up_to):
            row = self._next = next(self._rows, None)  # its event was removed
        if row is None or row.position > position:
            return None
        if row.position == position:
            self._next = next(self._rows, None)
        return row

    def _read_rows(self) -> Iterator[ApprovalRow]:
        after = -(1 << 63), ""
        while rows := self._reader.approval_rows(after, limit=_ROWS):
            yield from rows
            after = rows[-1].position, rows[-1].approval_id

    def _agrees(self, row: ApprovalRow, event: StoredEvent, fields: Mapping[str, Any]) -> bool:
        kept, data = Approval.from_json(row.record), fields["data"]
        columns = row.position, row.approval_id, row.call_id, row.is_open
        if columns != (event.position, kept.approval_id, kept.call_id, kept.state.is_open):
            return False
        if (data.get("approval_id", kept.approval_id), fields["call_id"]) != (kept.approval_id, kept.call):
            return False
        if kept.state is not _state_after(event.type, data, kept):
            return False
        said = [decode(each.body) for each in self._reader.approval_events(event.subject, event.position + 1)]
        said = [each for each in said if each["type"] in _KINDS and each["data"]["approval_id"] == kept.approval_id]
        if not said or said[0]["type"] != ApprovalRequested.TYPE:
            return self._removed_up_to > 0  # what it began with is gone
        return _is_what_was_said(kept, said, event.time_us)


def _state_after(kind: str, data: Mapping[str, Any], kept: Approval) -> ApprovalState:
    """Where an approval stands after an event. Whom its rules ask for, the row alone says."""
    if kind in _CLOSED_BY:
        return _CLOSED_BY[kind]
    if kind == ApprovalDecided.TYPE and data["choice"] == Choice.DENY.value:
        return ApprovalState.DENIED
    is_given = kind == ApprovalDecided.TYPE and is_satisfied(kept)
    return ApprovalState.APPROVED if is_given else ApprovalState.PENDING


def _is_what_was_said(kept: Approval, said: Sequence[Mapping[str, Any]], changed_us: int) -> bool:
    """Whether an approval is what its events make of it. `changed_us`: the time of the last one."""
    asked, decided = said[0]["data"], [each for each in said if each["type"] in _DECIDING]
    if [_of_decision(each) for each in kept.decisions] != [_of_event(each) for each in decided]:
        return False
    edits = [each["data"] for each in decided if each["data"].get("edited_digest")]
    digest = edits[-1]["edited_digest"] if edits else asked["digest"]
    if (kept.asked.digest, kept.digest) != (asked["digest"], digest):
        return False
    if not kept.state.is_open:
        return True
    until_us = asked["expires_us"] if kept.state is ApprovalState.PENDING else changed_us + kept.use_within_us
    texts = ((kept.asked_json, asked), (kept.arguments_json, edits[-1] if edits else asked))
    return kept.expires_us == until_us and all(_is_of(text, data["arguments"]) for text, data in texts)


_DECIDING = frozenset({ApprovalDecided.TYPE, ApprovalWithdrawn.TYPE})


def _of_decision(each: Decision) -> tuple[str, ...]:
    edited = "" if each.edited is None else each.edited.digest
    digest = "" if each.choice is Choice.WITHDRAW else each.digest  # its event has none
    who = each.by, each.authenticated_by, each.connection, each.reason
    return each.choice.value, *who, digest, edited, each.standing_id


def _of_event(fields: Mapping[str, Any]) -> tuple[str, ...]:
    data = fields["data"]
    choice = data.get("choice", Choice.WITHDRAW.value)
    who = data["by"], data["authenticated_by"], data["connection"], data["reason"]
    return choice, *who, data.get("digest", ""), data.get("edited_digest", ""), data.get("standing_id", "")


def _is_of(text: str, said: Mapping[str, Any] | None) -> bool:
    """Whether a text is the one whose digest an event has. None: it has none."""
    return said is None or hashlib.sha256(text.encode()).hexdigest() == said["sha256"]
