"""A batch of events as rows: which are appended, at which positions, and which are refused.

Refused is what another sidecar has settled meanwhile: the start of a call whose id is another call's, what would end or
go on with a call that somebody else has ended or goes on with, and going on with one whose sidecar may live. Under the
lock of the log's head, so that nothing changes while it is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fumehood_server.journal.approval_rows import ApprovalRows
from fumehood_server.journal.entry import CallChange, CallClaim, CallRow, CallState, Entry, filed
from fumehood_server.journal.postgres.run_owners import RunOwners
from fumehood_server.journal.quota_rows import EXCEEDED, QuotaRows
from fumehood_server.journal.standing_rows import StandingRows
from fumehood_server.journal.tree import Tile, Tree

TAKEN = "its call_id is another call's"
SETTLED = "another sidecar runs it, or has recorded how it ended"
NOT_LEFT = "its sidecar lives, or another one goes on with it"
UNKNOWN_CALL = "its start is not recorded"
_ENDS = frozenset({CallState.ENDED, CallState.UNKNOWN})


@dataclass(slots=True)
class Known:
    """A call as it is recorded, or will be by this batch."""

    owner: str
    state: CallState
    started_us: int
    end_position: int | None


@dataclass(slots=True)
class Rows:
    """The rows of one batch."""

    tree: Tree
    """Grows with each event."""
    reached_us: int
    late_us: int
    known: dict[str, Known]
    """The calls of the batch that are recorded."""
    mine: Collection[str]
    """Sidecars whose calls may be ended here: this one, and a dead one that is settled."""
    owner: str
    window_us: int
    """How long an id stands for its call."""
    approvals: ApprovalRows = field(default_factory=ApprovalRows)
    left: Mapping[str, int] = field(default_factory=dict)
    """Of calls of the batch that a dead sidecar left, how many events each has."""
    quotas: QuotaRows = field(default_factory=QuotaRows)
    standing: StandingRows = field(default_factory=StandingRows)
    runs: RunOwners = field(default_factory=RunOwners)
    first_body: bytes = b""
    events: list[tuple[object, ...]] = field(default_factory=list)
    calls: dict[str, CallRow] = field(default_factory=dict)
    changes: dict[str, tuple[CallState, int | None, str]] = field(default_factory=dict)
    payloads: list[tuple[object, ...]] = field(default_factory=list)
    documents: dict[bytes, bytes] = field(default_factory=dict)
    tiles: list[Tile] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Append one, or say in it why not."""
        position = self.tree.size
        entry.refused = self.approvals.refusal(entry) or self._standing_refusal(entry) or self._refusal(entry, position)
        if entry.refused:
            return
        self.approvals.keep(entry, position)
        self.standing.keep(entry, position)
        if entry.charges or entry.releases:
            self.quotas.keep(entry, position, max(entry.time_us, self.reached_us))
        self.tiles += self.tree.append(entry.body)
        self.first_body = self.first_body or entry.body
        self.reached_us = max(self.reached_us, entry.time_us)
        self.late_us = max(self.late_us, self.reached_us - entry.time_us)
        self.events.append(
            (
                position,
                entry.time_us,
                self.reached_us,
                entry.type,
                filed(entry.subject),
                filed(entry.tool),
                filed(entry.plugin),
                entry.body,
            )
        )
        self.payloads += [(position, part, data) for part, data in enumerate(entry.payloads)]
        for document in entry.documents:
            self.documents[document.digest] = document.data

    def _refusal(self, entry: Entry, position: int) -> str:
        """Keep what it says of its call or run, or say why not."""
        call = entry.call
        if type(call) is CallRow:
            return self._begin(call, position, entry)
        if type(call) is CallChange:
            return self._change(call, position)
        if type(call) is CallClaim:
            return self._claim(call)
        if entry.run is not None:
            return self.runs.claim(entry.run, self.owner)
        if entry.asks:
            return EXCEEDED if self.quotas.refuses(entry, max(entry.time_us, self.reached_us)) else ""
        return self._tell(entry.subject) if entry.of_call else ""

    def _standing_refusal(self, entry: Entry) -> str:
        if type(entry.call) is CallRow and entry.standing is not None and self._is_taken(entry.call):
            return TAKEN  # and not that it is used up: the call need not ask for another one
        return self.standing.refusal(entry)

    def _is_taken(self, row: CallRow) -> bool:
        found = self.known.get(row.call_id)
        return found is not None and (found.end_position is None or found.started_us >= row.started_us - self.window_us)

    def _begin(self, row: CallRow, position: int, entry: Entry) -> str:
        if self._is_taken(row):
            return TAKEN
        if self.quotas.refuses(entry, max(entry.time_us, self.reached_us)):
            return EXCEEDED
        row.start_position, row.end_position, row.state, row.owner = position, None, CallState.STARTED, self.owner
        self.calls[row.call_id] = row
        self.changes.pop(row.call_id, None)
        self.known[row.call_id] = Known(self.owner, CallState.STARTED, row.started_us, None)
        return ""

    def _change(self, change: CallChange, position: int) -> str:
        found = self.known.get(change.call_id)
        if found is None:
            return UNKNOWN_CALL
        owner = found.owner
        if change.state is CallState.RESOLVED:
            if found.state is not CallState.UNKNOWN:
                return SETTLED
        elif found.owner not in self.mine or found.end_position is not None:
            return SETTLED
        else:
            owner = self.owner  # what a dead one says of it when it comes back is not its call's any more
        found.state, found.owner = change.state, owner
        if change.state in _ENDS:
            found.end_position = position
        self._changed(change.call_id, found)
        return ""

    def _claim(self, claim: CallClaim) -> str:
        """Make the call this sidecar's, with all that happened to it before."""
        found = self.known.get(claim.call_id)
        if found is None or found.owner != claim.owner or found.end_position is not None:
            return NOT_LEFT
        if self.left.get(claim.call_id) != claim.events:
            return NOT_LEFT
        found.owner = self.owner
        self._changed(claim.call_id, found)
        return ""

    def _tell(self, call_id: str) -> str:
        """Whether this sidecar may say something more of a call, or why not."""
        found = self.known.get(call_id)
        return SETTLED if found is not None and found.owner not in self.mine else ""

    def _changed(self, call_id: str, found: Known) -> None:
        row = self.calls.get(call_id)
        if row is None:
            self.changes[call_id] = found.state, found.end_position, found.owner
        else:
            row.state, row.end_position, row.owner = found.state, found.end_position, found.owner


def known_calls(rows: Mapping[str, tuple[str, int, int, int | None]]) -> dict[str, Known]:
    """From columns owner, state, started_us, end_position by call id."""
    return {
        call_id: Known(owner, CallState(state), started_us, end)
        for call_id, (owner, state, started_us, end) in rows.items()
    }
