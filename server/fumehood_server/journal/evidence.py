"""Makes a bundle of evidence of one call or run from the journal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from fumehood_evidence.bundle import Bundle, BundleEvent, Earlier
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import NoteError
from fumehood_evidence.merkle import consistency_proof, inclusion_proof
from fumehood_evidence.note import Signer
from fumehood_evidence.verification import policies_of

from fumehood_server.errors import FumehoodError
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.store import EventFilter, Pruned, Reader, StoredEvent
from fumehood_server.journal.tree import TILE_HASHES, Tree

MAX_EVENTS = 100_000
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


class NoEvidenceError(FumehoodError):
    """There is nothing to prove."""


class NothingRecordedError(NoEvidenceError):
    """No event that is signed is about what was named."""


class EventsPrunedError(NoEvidenceError):
    """There is nothing to prove any more, or never was: whole events were removed, and with them what they were about.

    `pruned` says up to where.
    """

    def __init__(self, subject: str, pruned: Pruned) -> None:
        """Keep what was removed."""
        until = datetime.fromtimestamp(pruned.until_us / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
        super().__init__(
            f"no event is about {subject}: retention has removed {pruned.removed:,} events, those before record "
            f"{pruned.up_to:,}, the last of {until}. If it was before that, nothing of it is left to be proven"
        )
        self.pruned = pruned


def make_bundle(
    reader: Reader, signer: Signer, *, call_id: str = "", run_id: str = "", earlier: Sequence[str] = ()
) -> Bundle:
    """A bundle of the call or the run. `earlier`: notes of checkpoints that somebody was handed before.

    Raises:
        EventsPrunedError: no event is about it, and events were removed.
        NoEvidenceError: no signed event is about it, or a checkpoint handed in is none.
        StoreError: the journal can't be read.
    """
    note = reader.checkpoint(0, signer=signer.verifier.name)
    if note is None:
        raise NoEvidenceError("the journal has no checkpoint yet: one is signed a second after an event")
    size = Checkpoint.parse(note.partition("\n\n")[0] + "\n").size
    found = _events(reader, call_id, run_id)
    pruned = pruned_so_far(reader)
    if not found and pruned.removed:
        raise EventsPrunedError(call_id or run_id, pruned)
    events = [each for each in found if each.position < size]
    if not events:
        raise NothingRecordedError(f"no signed event is about {call_id or run_id}")
    tree = Tree.load(size, reader.tile, reader.bodies(size - size % TILE_HASHES, size))
    subtree = tree.reader(reader.tile)
    payloads: dict[int, dict[int, bytes]] = {}
    for event in events:
        for (position, part), data in reader.payloads(event.position, event.position + 1).items():
            payloads.setdefault(position, {})[part] = data
    documents = _documents(reader, _digests(events))
    documents |= _documents(reader, policies_of(documents.values()))
    bundle = Bundle(
        {"call_id": call_id} if call_id else {"run_id": run_id},
        note,
        [
            BundleEvent(each.position, each.body, tuple(inclusion_proof(each.position, size, subtree)))
            for each in events
        ],
        payloads,
        documents,
        [Earlier(text, tuple(consistency_proof(_size_of(text, size), size, subtree))) for text in earlier],
    )
    return bundle.sealed(signer)


def _events(reader: Reader, call_id: str, run_id: str) -> list[StoredEvent]:
    calls = [call_id] if call_id else reader.calls_of_run(run_id)
    events = reader.events(EventFilter(subjects=(run_id,)), limit=MAX_EVENTS) if run_id else []
    for each in calls:
        of_call = reader.events_of_call(each)
        if of_call:
            of_call = [*reader.approval_events(each, of_call[0].position), *of_call]
        events += of_call
        if len(events) > MAX_EVENTS:
            raise NoEvidenceError(f"the run has more than {MAX_EVENTS:,} events: take its calls one by one")
    return sorted(events, key=lambda event: event.position)


def _digests(events: Iterable[StoredEvent]) -> list[str]:
    """What may name a document: each text of an event's data that is a SHA-256."""
    texts = {text for event in events for text in decode(event.body)["data"].values() if isinstance(text, str)}
    return sorted({found[1] for text in texts if (found := _SHA256.fullmatch(text))})


def _documents(reader: Reader, digests: Iterable[str]) -> dict[str, bytes]:
    """Those that the journal has."""
    found = {digest: reader.document(bytes.fromhex(digest)) for digest in digests}
    return {digest: data for digest, data in found.items() if data is not None}


def _size_of(note: str, size: int) -> int:
    try:
        before = Checkpoint.parse(note.partition("\n\n")[0] + "\n").size
    except NoteError as exc:
        raise NoEvidenceError(f"what was handed in is no checkpoint: {exc}") from exc
    if before > size:
        raise NoEvidenceError(f"the checkpoint handed in is over {before} events, and this journal has {size} signed")
    return before
