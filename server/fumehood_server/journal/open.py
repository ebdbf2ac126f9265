"""Opens the journal that the configuration names, and ends what dead sidecars left open there."""

from __future__ import annotations

import contextlib
import functools
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from fumehood_evidence.merkle import consistency_proof
from fumehood_evidence.note import Verifier

from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.handover.handover import Handover
from fumehood_server.journal.handover.prove import Prove
from fumehood_server.journal.interrupted import InterruptedCalls
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.keys import load_or_make_key, public_keys
from fumehood_server.journal.place import Place
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.recovery import end_late, recover
from fumehood_server.journal.retention import Retention, remove_events, remove_payloads
from fumehood_server.journal.store import Store, load_tree
from fumehood_server.model.steady_clock import STEADY_CLOCK

RECOVER_S = 2.0
"""Between two looks for sidecars that have died, where several share the journal."""


def open_journal(
    place: Place,
    folder: Path,
    *,
    window_s: float,
    keep_payloads_d: float,
    keep_events_d: float,
    on_state: Callable[[str | None], None],
    on_recovered: Callable[[int, int], None],
    hand_over: Callable[[Verifier, Prove], Handover | None],
) -> StoredJournal:
    """The journal, signed with the key of a state folder.

    `on_recovered` is told, in the writer's thread, of calls of dead sidecars that had no outcome: how many have one
    now, and how many may run again. `window_s`: how long a call's id stands for that call. `keep_payloads_d` and
    `keep_events_d`: days after which arguments and results, or whole events, are removed; 0: never. `hand_over` is
    given the key that signs and what proves that the log has only grown.

    Raises:
        JournalKeyError: the key can't be read or made.
    """
    sidecar = secrets.token_hex(4)
    recovered_at: float | None = None
    interrupted = InterruptedCalls(window_s)

    def recover_calls(store: Store) -> None:
        nonlocal recovered_at
        known = interrupted.found
        ended = recover(store, place.open_reader, sidecar=sidecar, interrupted=interrupted)
        recovered_at = time.monotonic()
        if ended or interrupted.found > known:
            on_recovered(ended, interrupted.found - known)

    def open_store() -> Store:
        store = place.open_store(sidecar)
        if recovered_at is None:  # in a file, calls without an outcome are later this sidecar's own
            try:
                recover_calls(store)
            except BaseException:
                store.close()
                raise
        return store

    signer = load_or_make_key(folder)
    handover = hand_over(signer.verifier, functools.partial(_prove, place))
    checkpointer = Checkpointer(signer, handover)
    kept = ((keep_payloads_d, remove_payloads), (keep_events_d, remove_events))
    retentions = [Retention(days, what, sidecar=sidecar) for days, what in kept if days]

    def upkeep(store: Store) -> float | None:
        waits_s: list[float | None] = [each(store) for each in retentions]
        if interrupted and not place.shared:  # else whoever looks next for dead sidecars ends them
            with contextlib.closing(place.open_reader()) as reader:
                end_late(store, reader, sidecar=sidecar, interrupted=interrupted)
            waits_s.append(interrupted.due_s(STEADY_CLOCK.now_us()))
        if place.shared:
            if recovered_at is None or time.monotonic() - recovered_at >= RECOVER_S:
                recover_calls(store)
            waits_s.append(RECOVER_S)
        checkpointer(store)
        return min((each for each in waits_s if each is not None), default=None)

    return StoredJournal(
        open_store,
        place.open_reader,
        sidecar=sidecar,
        on_state=on_state,
        window_s=window_s,
        upkeep=upkeep,
        on_closed=None if handover is None else handover.close,
        shared=place.shared,
        interrupted=interrupted,
        reads=JournalReads(place, lambda: public_keys(folder)),
    )


def _prove(place: Place, old: int, new: int) -> list[bytes]:
    tree = load_tree(place.open_reader())
    with contextlib.closing(place.open_reader()) as reader:
        return consistency_proof(old, new, tree.reader(reader.tile))
