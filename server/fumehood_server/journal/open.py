"""Opens the journal that the configuration names, and ends what a dead sidecar left open there."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from fumehood_evidence.merkle import consistency_proof
from fumehood_evidence.note import Verifier

from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.handover.handover import Handover
from fumehood_server.journal.handover.prove import Prove
from fumehood_server.journal.interrupted import InterruptedCalls
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.keys import load_or_make_key, public_keys
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.recovery import end_late, recover
from fumehood_server.journal.retention import Retention, remove_events, remove_payloads
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.sqlite.reader import load_tree
from fumehood_server.journal.store import Store


def open_journal(
    folder: Path,
    *,
    window_s: float,
    keep_payloads_d: float,
    keep_events_d: float,
    on_state: Callable[[str | None], None],
    on_recovered: Callable[[int, int], None],
    hand_over: Callable[[Verifier, Prove], Handover | None],
) -> StoredJournal:
    """The journal in a state folder. `on_recovered` is told, in the writer's thread, of calls that had no outcome.

    How many have one now, and how many may run again.

    `window_s`: how long a call's id stands for that call. `keep_payloads_d` and `keep_events_d`: days after which
    arguments and results, or whole events, are removed; 0: never. `hand_over` is given the key that signs and what
    proves that the log has only grown.

    Raises:
        JournalKeyError: the key can't be read or made.
    """
    path, sidecar = folder / JOURNAL_NAME, secrets.token_hex(4)
    recovered, interrupted = False, InterruptedCalls(window_s)

    def open_store() -> Store:
        nonlocal recovered
        store = SqliteStore(path)
        if not recovered:  # later, calls without an outcome are this sidecar's own
            try:
                with contextlib.closing(SqliteReader(path)) as reader:
                    ended = recover(store, reader, sidecar=sidecar, interrupted=interrupted)
            except BaseException:
                store.close()
                raise
            recovered = True
            if ended or interrupted:
                on_recovered(ended, len(interrupted))
        return store

    def prove(old: int, new: int) -> list[bytes]:
        tree = load_tree(SqliteReader(path))
        with contextlib.closing(SqliteReader(path)) as reader:
            return consistency_proof(old, new, tree.reader(reader.tile))

    signer = load_or_make_key(folder)
    handover = hand_over(signer.verifier, prove)
    checkpointer = Checkpointer(signer, handover)
    kept = ((keep_payloads_d, remove_payloads), (keep_events_d, remove_events))
    retentions = [Retention(days, what, sidecar=sidecar) for days, what in kept if days]

    def upkeep(store: Store) -> float | None:
        waits_s: list[float | None] = [each(store) for each in retentions]
        if interrupted:
            with contextlib.closing(SqliteReader(path)) as reader:
                end_late(store, reader, sidecar=sidecar, interrupted=interrupted)
            waits_s.append(interrupted.due_s(time.time_ns() // 1_000))
        checkpointer(store)
        return min((each for each in waits_s if each is not None), default=None)

    return StoredJournal(
        open_store,
        lambda: SqliteReader(path),
        sidecar=sidecar,
        on_state=on_state,
        window_s=window_s,
        upkeep=upkeep,
        on_closed=None if handover is None else handover.close,
        interrupted=interrupted,
        reads=JournalReads(lambda: SqliteReader(path), lambda: public_keys(folder), str(path)),
    )
