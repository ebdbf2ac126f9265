"""Journals with events in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fumehood_evidence.note import Signer
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.place import FilePlace, Place
from fumehood_server.model.events import (
    About,
    Digested,
    Document,
    Event,
    ExecuteAttempt,
    ExecuteEnd,
    ExecuteStart,
    Fault,
    SidecarStarted,
)

RECEIPT = Document(hashlib.sha256(b"receipt").digest(), b"receipt")
STARTED_US = 1_700_000_000_000_000


def about(call_id: str, *, run_id: str = "run-1", tool: str = "write_file") -> About:
    return About(call_id=call_id, run_id=run_id, tool=tool, plugin="files", context={"request_id": run_id})


def start(arguments: bytes = b"{}", *, side_effects: str = "write") -> ExecuteStart:
    return ExecuteStart(
        side_effects=side_effects,
        arguments_hash=hashlib.sha256(arguments).hexdigest(),
        arguments=Digested.of(arguments),
        plugin="p" * 64,
        definition="d" * 64,
        caller="",
    )


ATTEMPT = ExecuteAttempt(attempt=1, worker_id="files-1", receipt=RECEIPT.digest.hex())


def end(result: bytes = b"[]", *, error: Fault | None = None) -> ExecuteEnd:
    return ExecuteEnd(
        error=error,
        outcome_unknown=False,
        result=Digested.of(result),
        attempts=1,
        worker_id="files-1",
        receipt=RECEIPT.digest.hex(),
    )


class Clock:
    """A microsecond later each time."""

    def __init__(self) -> None:
        self._now = STARTED_US

    def __call__(self) -> int:
        self._now += 1
        return self._now


def entries(calls: int, *, clock: Clock | None = None, first: int = 0) -> Iterator[Entry]:
    """A sidecar's start, and calls that each start, are sent and end."""
    tick = clock or Clock()

    def made(event: Event, of: About, number: int = 0, payloads: tuple[bytes, ...] = ()) -> Entry:
        return encode(
            event, of, time_us=tick(), sidecar="0a0b0c0d", number=number, payloads=payloads, documents=(RECEIPT,)
        )

    if not first:
        yield made(SidecarStarted(version="0.1.0"), About())
    for number in range(first, first + calls):
        of = about(f"call-{number:08}", run_id=f"run-{number // 10}")
        arguments, result = b'{"path":"%d"}' % number, b'["%d"]' % number
        yield made(start(arguments), of, 1, (arguments,))
        yield made(ATTEMPT, of, 2)
        yield made(end(result), of, 3, (result,))


def written(place: Path | Place, batches: Sequence[Sequence[Entry]], signer: Signer | None = None) -> None:
    """A journal of these batches, with a checkpoint after each."""
    store = (FilePlace(place) if isinstance(place, Path) else place).open_store("0a0b0c0d")
    try:
        for batch in batches:
            store.write(batch)
            if signer is not None:
                Checkpointer(signer)(store)
    finally:
        store.close()
