"""What a database must do for the journal: one transaction for each batch of events, and reading by key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fumehood_server.errors import FumehoodError
from fumehood_server.journal.entry import CallRow, Entry
from fumehood_server.journal.tree import TILE_HASHES, Tree

if TYPE_CHECKING:
    from fumehood_server.journal.query import Bounds, EventQuery, Found, Span


class StoreError(FumehoodError):
    """The database can't be used now. The message names the cause; what was to be written is not."""


class InUseError(StoreError):
    """Another process writes the journal."""


class UnequalSettingsError(StoreError):
    """Another sidecar on the same database has another value of a setting that must be the same. For the operator."""

    def __init__(self, key: str, here: str, there: str) -> None:
        """`key` of [journal], and its values."""
        super().__init__(
            f"`{key}` of [journal] is {here} here and {there} at another sidecar on the same database: "
            "all must have the same"
        )
        self.key, self.here, self.there = key, here, there


class NoJournalError(StoreError):
    """There is no journal yet."""


class NewerJournalError(FumehoodError):
    """The journal was written by a newer sidecar, whose records this one would misread."""

    def __init__(self, where: str, found: int, known: int) -> None:
        """Keep what was found."""
        super().__init__(
            f"the journal in {where} has schema version {found}, and this sidecar knows {known}: "
            "run the newer sidecar, or name another journal"
        )


class StoredEvent(NamedTuple):
    """An event as it lies in the journal. No dataclass: a frozen one takes several times as long to make."""

    position: int
    time_us: int
    type: str
    subject: str
    tool: str
    plugin: str
    body: bytes


class StandingRow(NamedTuple):
    """A row of the table of standing approvals: see `standing_rows.Row`."""

    standing_id: str
    binding: str
    is_open: bool
    until_us: int
    position: int
    record: bytes


class ApprovalRow(NamedTuple):
    """A row of the table of approvals: see `approval_rows.Row`."""

    approval_id: str
    call_id: str
    is_open: bool
    position: int
    record: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a journal holds."""

    events: int
    calls: int
    ended: int
    """Calls that have an outcome."""
    payloads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events. Empty fields ask for nothing."""

    types: frozenset[str] = frozenset()
    subjects: tuple[str, ...] = ()
    tool: str = ""
    plugin: str = ""
    since_us: int = 0
    until_us: int = 0


PruneEvent = Callable[[int, int, int], Entry]
"""Given the first position whose payloads are kept, how many were removed, and the time of the last event, in
microseconds: the event that says so."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Which whole events were removed so far: see `EventsPruned`."""

    up_to: int = 0
    until_us: int = 0
    removed: int = 0


PruneEventsEvent = Callable[[Pruned, int], Entry]
"""Given what is removed then, and the time of the last event, in microseconds: the event that says so."""


class Store(Protocol):
    """For one thread, the writer's. Every method may block on the disk or the network, and raise `StoreError`."""

    def write(self, entries: Sequence[Entry]) -> int:
        """Append these events in one transaction, on disk when it returns. Returns the log's new size.

        Where several sidecars write, an event may be refused, as of a call whose outcome another has recorded: it is
        not appended, and `Entry.refused` says why.
        """

    def write_unsynced(self, entries: Sequence[Entry]) -> int:
        """As `write`, and a failure of the machine may take them back until `sync` or the next `write`."""

    def sync(self) -> None:
        """Have on disk what is not."""

    def prune(self, before_us: int, limit: int, event: PruneEvent) -> int:
        """Remove the payloads of the oldest events before a time, about so many, and append the event that says so.

        All in one transaction. Returns how many there were; without any nothing is written.
        """

    def prune_events(self, before_us: int, limit: int, event: PruneEventsEvent) -> int:
        """Remove the next so many events from before a time, with their payloads, and append the event that says so.

        Events of calls that have no outcome yet, or an unknown one, stay until that is settled and `prune_events` comes
        by what settled it; so do pins. The rest goes in whole tiles, so that their hashes are kept in the tree. All in
        one transaction. Returns how many it came by; 0: nothing was written.
        """

    def owners(self) -> list[str]:
        """Sidecars that began calls which have no outcome yet. Empty names: there is only one at a time."""

    def taking_over(self, owner: str) -> AbstractContextManager[bool]:
        """Whether the sidecar of this name is dead, so that its calls may be ended. Within the block it stays so."""

    def tree(self) -> Tree:
        """The tree over what is written, for a checkpoint."""

    def shrink(self) -> None:
        """Give free space back.

        Raises:
            StoreError: there is not as much space as it takes meanwhile.
        """

    def add_checkpoint(self, size: int, note: str) -> None:
        """Keep a signed checkpoint."""

    def close(self) -> None:
        """Let go of the database."""


class Reader(Protocol):
    """For any one thread at a time, beside the writer's."""

    @property
    def shared(self) -> bool:
        """Whether several sidecars may write it, each with a clock and a key of its own."""

    def size(self) -> int:
        """How many events there are."""

    def least_time_us(self) -> int:
        """The least that the time of the next event may be, where events are found by their times. 0: any."""

    def search(self, query: EventQuery, span: Span, bounds: Bounds) -> Found:
        """The first events of a span that fit. Bounded in memory and time whatever is asked."""

    def counts(self) -> Counts:
        """How much there is. Takes longer the more there is."""

    def last(self, kind: str) -> StoredEvent | None:
        """The newest event of a type."""

    def events(self, wanted: EventFilter, *, after: int = -1, limit: int) -> list[StoredEvent]:
        """The first events after a position."""

    def bodies(self, start: int, end: int) -> Iterator[bytes]:
        """The bodies of events `start` to `end`, a few at a time in memory."""

    def calls(self, call_ids: Collection[str]) -> dict[str, CallRow]:
        """The newest call of each of these ids."""

    def quota_windows(self) -> Iterator[bytes]:
        """What each quota has counted in its window: see `fumehood_server.model.quota_counts.Window`."""

    def quota_holds(self) -> list[tuple[bytes, int]]:
        """How many calls are in flight, by quota and key as JSON: `[name, [[key, value]…]]`."""

    def approvals(
        self,
        *,
        approval_id: str = "",
        call_id: str = "",
        is_open: bool = False,
        after: int | None = None,
        limit: int,
        max_bytes: int,
    ) -> list[tuple[int, bytes]]:
        """Approvals with the positions of what changed them last: of a call the newest first, else the oldest.

        They end early beyond so many bytes, after one at least.
        """

    def approval_positions(self, approval_ids: Collection[str]) -> dict[str, int]:
        """Positions of what changed these approvals last."""

    def approval_rows(self, after: tuple[int, str], *, limit: int) -> list[ApprovalRow]:
        """The first approvals after a position and an id, in that order."""

    def standing_approvals(
        self, *, binding: str = "", open_at_us: int | None = None, after: str = "", limit: int
    ) -> list[StandingRow]:
        """The first after an id, in the order of their ids. `open_at_us`: those that may be used then."""

    def standing_approval(self, standing_id: str) -> StandingRow | None:
        """One of them."""

    def approval_events(self, call_id: str, before: int) -> list[StoredEvent]:
        """Events of the approvals of a call from before its start."""

    def open_calls(self, owner: str, *, limit: int) -> list[CallRow]:
        """A sidecar's calls that have no outcome yet, in the order in which they began."""

    def newest_calls(self, *, run_id: str = "", limit: int) -> list[CallRow]:
        """The calls that began last, of a run or session if one is given, the newest first."""

    def events_of_call(self, call_id: str) -> list[StoredEvent]:
        """All events of the newest call of this id."""

    def call_ids(self, since_us: int) -> Iterator[str]:
        """Ids of the calls that began since then."""

    def calls_of_run(self, run_id: str) -> list[str]:
        """Ids of a run's calls, in the order in which they began."""

    def payloads(self, start: int, end: int) -> dict[tuple[int, int], bytes]:
        """Payloads of events `start` to `end`, by position and part: those that are kept."""

    def payloads_of(self, position: int, *, max_bytes: int) -> list[bytes | None]:
        """Those of an event that are kept, by part; None for one of more bytes."""

    def document(self, digest: bytes) -> bytes | None:
        """What events name by this digest."""

    def documents(self) -> Iterator[tuple[bytes, bytes]]:
        """All of them, by digest."""

    def tile(self, level: int, index: int) -> bytes | None:
        """A complete tile of the tree."""

    def tile_places(self) -> list[tuple[int, int]]:
        """Level and index of each tile."""

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """All signed checkpoints, with the sizes they are filed under, smallest first."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Within the block all that is read is as it was at one moment, whatever is written meanwhile."""

    def checkpoint(self, size: int, *, signer: str = "") -> str | None:
        """The newest signed checkpoint over at least so many events. `signer`: by this key, where there are several."""

    def close(self) -> None:
        """Let go of the database."""


def load_tree(reader: Reader, size: int | None = None) -> Tree:
    """The tree over what is written, or over so many events of it, and let go of the reader."""
    with closing(reader):
        size = reader.size() if size is None else size
        return Tree.load(size, reader.tile, reader.bodies(size - size % TILE_HASHES, size))


def read_payload(reader: Reader, event: StoredEvent) -> bytes | None:
    """The first payload of an event. None: it has none, or it is no longer kept."""
    return reader.payloads(event.position, event.position + 1).get((event.position, 0))
