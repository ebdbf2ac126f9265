"""Reads a whole journal and says whether it is what was signed, or which record is the first that is not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import NoteError, UnknownKeyError
from fumehood_evidence.merkle import EMPTY_ROOT, HASH_BYTES
from fumehood_evidence.note import Verifier, opened

from fumehood_server.journal.encoding import decode, has_effects
from fumehood_server.journal.entry import CallRow, CallState, filed
from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.store import Counts, EventFilter, Pruned, Reader, StoredEvent, StoreError
from fumehood_server.journal.tree import TILE_BITS, TILE_HASHES, Tile, Tree
from fumehood_server.journal.verify_approvals import ApprovalChecks
from fumehood_server.journal.verify_standing import StandingChecks
from fumehood_server.model.event_types import PAYLOADS
from fumehood_server.model.events import (
    ExecuteAttempt,
    ExecuteCancelled,
    ExecuteEnd,
    ExecuteStart,
    OutcomeResolved,
    PayloadsPruned,
)

_PORTION = 1_000
_OF_CALLS = frozenset(
    each.TYPE for each in (ExecuteStart, ExecuteAttempt, ExecuteEnd, ExecuteCancelled, OutcomeResolved)
)


@dataclass(frozen=True, slots=True)
class Fault:
    """The first record that is not what it should be."""

    position: int
    """Of the event. -1: it is no event's."""
    problem: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found."""

    events: int
    signed: int
    """How many of them a checkpoint by a known key covers."""
    payloads: int
    """Arguments and results that are here, and are what their events say."""
    fault: Fault | None
    removed: int = 0
    """Arguments and results of events that are here which retention has removed, as a later event says."""
    removed_events: int = 0
    """Whole events that retention has removed, as a later event says: of them the tree has the hashes."""
    removed_up_to: int = 0
    """No event from this position on is among them."""
    removed_until_us: int = 0
    """POSIX time of the last event before that position."""


def verify(reader: Reader, keys: Sequence[Verifier], *, progress: Callable[[int, int], None] | None = None) -> Verified:
    """Check every record, in order. `progress` is told events read and their number."""
    return _Verification(reader, keys, progress).run()


class _FaultError(Exception):
    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.fault = Fault(position, problem)


class _Verification:
    def __init__(self, reader: Reader, keys: Sequence[Verifier], progress: Callable[[int, int], None] | None) -> None:
        self._reader = reader
        self._keys = keys
        self._progress = progress
        self._tree = Tree()
        self._signed = 0
        self._payloads = self._removed = self._removed_events = 0
        self._pruned = 0
        """Events before this position have no payloads any more, as a later event says."""
        self._pruned_events = Pruned()
        """What was removed of events, as a later one says."""
        self._checkpoint: Iterator[Checkpoint] = iter(())
        self._due: Checkpoint | None = None
        """The next one that the tree comes by."""
        self._leaves = b""
        """Hashes of the tile that removed events are read from."""
        self._begun = self._ended = 0
        """Calls whose rows were found to be what their events say."""

    def run(self) -> Verified:
        fault = None
        try:
            self._read()
        except _FaultError as exc:
            fault = exc.fault
        except (StoreError, AttributeError, KeyError, TypeError, ValueError) as exc:  # columns of a damaged file
            fault = Fault(self._tree.size, f"can't be read: {exc}")
        pruned = self._pruned_events
        return Verified(
            self._tree.size,
            self._signed,
            self._payloads,
            fault,
            self._removed,
            self._removed_events,
            pruned.up_to,
            pruned.until_us,
        )

    def _read(self) -> None:
        counts = self._reader.counts()
        self._pruned_events = self._removed_so_far(counts.events)
        # Of an event whose call is not settled yet, payloads may be gone where what said so is gone as well.
        self._pruned = max(self._pruned_up_to(counts.events), self._pruned_events.up_to)
        self._checkpoint = self._checkpoints()
        self._due = next(self._checkpoint, None)
        approvals = ApprovalChecks(self._reader, self._pruned_events.up_to)
        standing = StandingChecks(self._reader, self._pruned_events.up_to)
        while self._tree.size < counts.events:
            events = self._reader.events(EventFilter(), after=self._tree.size - 1, limit=_PORTION)
            if not events:
                raise _FaultError(self._tree.size, "is missing")
            payloads = self._reader.payloads(events[0].position, events[-1].position + 1)
            rows = self._reader.calls({each.subject for each in events if each.type in _OF_CALLS})
            approvals.begin(events)
            for event in events:
                while self._tree.size < min(event.position, self._pruned_events.up_to):
                    self._add(self._tree.append_hash(self._removed_leaf()))
                fields = self._check_event(event, payloads, rows)
                if problem := approvals.problem(event, fields) or standing.problem(event, fields):
                    raise _FaultError(event.position, problem)
                self._add(self._tree.append(event.body))
            if self._progress is not None:
                self._progress(self._tree.size, counts.events)
        if self._due is not None:
            raise _FaultError(counts.events, f"is missing: a checkpoint was signed over {self._due.size} events")
        if problem := approvals.rest():
            raise _FaultError(-1, problem)
        if (fault := standing.rest()) is not None:
            raise _FaultError(*fault)
        self._check_rest(counts)

    def _add(self, tiles: Sequence[Tile]) -> None:
        """An event is in the tree, which completed these."""
        for tile in tiles:
            self._check_tile(tile)
        while self._due is not None and self._due.size == self._tree.size:
            self._check_root(self._due)
            self._due = next(self._checkpoint, None)

    def _removed_leaf(self) -> bytes:
        """The hash of the next event, which was removed. Whether it is right, the tiles above and the roots tell."""
        position = self._tree.size
        at = position % TILE_HASHES * HASH_BYTES
        if not at or not self._leaves:
            self._leaves = self._reader.tile(0, position >> TILE_BITS) or b""
        if len(self._leaves) != TILE_HASHES * HASH_BYTES:
            raise _FaultError(position, "was removed, and the tree has lost its hash")
        self._removed_events += 1
        return self._leaves[at : at + HASH_BYTES]

    def _check_rest(self, counts: Counts) -> None:
        """That there is nothing of which no event speaks."""
        if (self._payloads, self._begun, self._ended) != (counts.payloads, counts.calls, counts.ended):
            raise _FaultError(-1, "there are calls, or their arguments or results, of which no event speaks")
        if self._removed_events != self._pruned_events.removed:
            removed, said = self._removed_events, self._pruned_events.removed
            raise _FaultError(-1, f"{removed} events are gone, and retention has removed {said} of them")
        if len(self._reader.tile_places()) != _tiles_of(counts.events):
            raise _FaultError(-1, "the tree has tiles of events that are not there")
        for digest, data in self._reader.documents():
            if hashlib.sha256(data).digest() != digest:
                raise _FaultError(-1, f"the document {digest.hex()} is not the one that was written")

    def _pruned_up_to(self, size: int) -> int:
        last = self._reader.last(PayloadsPruned.TYPE)
        if last is None:
            return 0
        try:
            return min(int(decode(last.body)["data"]["up_to"]), size)
        except (ValueError, TypeError, KeyError) as exc:
            raise _FaultError(last.position, "is no event") from exc

    def _removed_so_far(self, size: int) -> Pruned:
        pruned = pruned_so_far(self._reader)
        return replace(pruned, up_to=min(pruned.up_to, size))

    def _checkpoints(self) -> Iterator[Checkpoint]:
        for kept, note in self._reader.checkpoints():
            try:
                checkpoint = Checkpoint.parse(opened(note, self._keys).text)
            except UnknownKeyError as exc:
                if self._reader.shared:  # another sidecar's: it proves nothing to who doesn't know its key
                    continue
                raise _FaultError(-1, f"the checkpoint over {kept} events: {exc}") from exc
            except NoteError as exc:
                raise _FaultError(-1, f"the checkpoint over {kept} events: {exc}") from exc
            if checkpoint.size != kept:
                raise _FaultError(-1, f"the checkpoint over {kept} events is one over {checkpoint.size}")
            if checkpoint.size:
                yield checkpoint
            elif checkpoint.root != EMPTY_ROOT:
                raise _FaultError(-1, "the checkpoint over no events has a root")

    def _check_root(self, checkpoint: Checkpoint) -> None:
        if self._tree.root() != checkpoint.root:
            raise _FaultError(self._signed, f"or one up to {checkpoint.size - 1} was changed after it was signed")
        self._signed = checkpoint.size

    def _check_event(
        self, event: StoredEvent, payloads: Mapping[tuple[int, int], bytes], rows: Mapping[str, CallRow]
    ) -> Mapping[str, Any]:
        """What it says."""
        position = self._tree.size
        if event.position != position:
            raise _FaultError(position, "is missing")
        try:
            fields = decode(event.body)
        except ValueError as exc:
            raise _FaultError(position, "is no event") from exc
        said = (
            fields.get("time_us"),
            fields["type"],
            fields.get("call_id") or fields.get("run_id"),
            fields.get("tool"),
            fields.get("plugin"),
        )
        if not _is_filed((event.time_us, event.type, event.subject, event.tool, event.plugin), said):
            raise _FaultError(position, "is filed under what it does not say")
        name = PAYLOADS.get(event.type)
        if name is not None:
            self._check_payload(position, fields["data"].get(name), payloads.get((position, 0)))
        if event.type in _OF_CALLS and not self._row_agrees(rows.get(event.subject), fields, position):
            raise _FaultError(position, "is of a call that the list of calls shows otherwise")
        return fields

    def _check_payload(self, position: int, said: Mapping[str, Any] | None, data: bytes | None) -> None:
        if data is None:
            kept = said is not None and said.get("kept")
            if kept and position >= self._pruned:
                raise _FaultError(position, "has lost its arguments or its result, and no event says who removed them")
            self._removed += bool(kept)
            return
        if said is None or hashlib.sha256(data).hexdigest() != said.get("sha256"):
            raise _FaultError(position, "has arguments or a result that are not those it was written with")
        self._payloads += 1

    def _row_agrees(self, row: CallRow | None, fields: Mapping[str, Any], position: int) -> bool:
        """Whether the list of calls has what an event says. Of an id that was used again it has the last call."""
        if row is None:
            return False
        if row.start_position > position:
            return True
        kind, data = fields["type"], fields["data"]
        if kind == ExecuteStart.TYPE:
            self._begun += 1
            columns = (
                row.start_position,
                row.tool,
                row.run_id,
                row.session_id,
                row.arguments_hash.hex(),
                row.has_effects,
                row.started_us,
            )
            said = (
                position,
                fields["tool"],
                fields["run_id"],
                fields["context"].get("session_id", ""),
                data.get("asked_hash") or data["arguments_hash"],
                has_effects(data["side_effects"]),
                fields["time_us"],
            )
            return _is_filed(columns, said)
        if kind == ExecuteAttempt.TYPE:
            return row.state is not CallState.STARTED
        if kind == OutcomeResolved.TYPE:
            return row.state is CallState.RESOLVED
        self._ended += 1
        states = (CallState.UNKNOWN, CallState.RESOLVED) if data["outcome_unknown"] else (CallState.ENDED,)
        return row.end_position == position and row.state in states

    def _check_tile(self, tile: Tile) -> None:
        if self._reader.tile(tile.level, tile.index) != tile.hashes:
            width = 1 << TILE_BITS * (tile.level + 1)
            raise _FaultError(tile.index * width, f"or one of the {width} from it on has another hash in the tree")


def _is_filed(columns: tuple[object, ...], said: tuple[object, ...]) -> bool:
    """Whether columns have what an event says, but for characters that no column takes."""
    return columns == said or [_as_filed(each) for each in columns] == [_as_filed(each) for each in said]


def _as_filed(value: object) -> object:
    return filed(value) if isinstance(value, str) else value


def _tiles_of(size: int) -> int:
    """How many complete tiles the tree of so many events has."""
    count = 0
    while size >> TILE_BITS:
        size >>= TILE_BITS
        count += size
    return count
