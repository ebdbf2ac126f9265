"""Entries for a journal that several sidecars write, and whether it is whole afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from fumehood_evidence.note import Signer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.verify import verify
from fumehood_server.model.events import About, Event

from .bench import ATTEMPT, STARTED_US, about, end, start

ONE, OTHER = Signer.generate("one"), Signer.generate("other")


def event(what: Event, call_id: str, *, time_us: int = STARTED_US, of: About | None = None) -> Entry:
    kept = {"execute_start": (b"{}",), "execute_end": (b"[]",)}.get(what.TYPE, ())
    return encode(what, of or about(call_id), time_us=time_us, sidecar="0a", number=1, payloads=kept)


def call(call_id: str, *, time_us: int = STARTED_US) -> list[Entry]:
    return [event(each, call_id, time_us=time_us) for each in (start(), ATTEMPT, end())]


def refused(some: Sequence[Entry]) -> list[str]:
    return [each.refused for each in some]


def assert_whole(place: DatabasePlace, events: int, *signers: Signer) -> None:
    with contextlib.closing(place.open_reader()) as reader:
        found = verify(reader, [each.verifier for each in signers])
    assert (found.fault, found.events) == (None, events)
