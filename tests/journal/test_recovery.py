"""Calls that a dead sidecar left behind have one outcome each, which says what may have happened."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from fumehood_evidence.note import Signer
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.encoding import decode, encode
from fumehood_server.journal.entry import CallState
from fumehood_server.journal.interrupted import InterruptedCalls
from fumehood_server.journal.place import FilePlace, Place
from fumehood_server.journal.recorded import read_call
from fumehood_server.journal.recovery import end_late, recover
from fumehood_server.journal.store import EventFilter, Reader, Store
from fumehood_server.journal.verify import verify
from fumehood_server.model.events import Event
from fumehood_server.model.recorded import RecordedState

from .bench import ATTEMPT, Clock, about, end, start

SIGNER = Signer.generate("test/journal")


def began(store: Store, call_id: str, *events: Event) -> None:
    clock = Clock()
    entries = []
    for number, event in enumerate(events, start=1):
        payloads = {"execute_start": (b"{}",), "execute_end": (b"[]",)}.get(event.TYPE, ())
        entries.append(
            encode(event, about(call_id), time_us=clock(), sidecar="0a0b0c0d", number=number, payloads=payloads)
        )
    store.write(entries)


def outcome(reader: Reader, call_id: str) -> dict[str, object]:
    last = reader.events_of_call(call_id)[-1]
    data: dict[str, object] = orjson.loads(reader.payloads(last.position, last.position + 1)[last.position, 0])
    error = data["error"]
    assert isinstance(error, dict)
    return error


def test_what_may_have_had_effects_is_unknown_and_the_rest_may_be_called_again(place: Place) -> None:
    with contextlib.closing(place.open_store("0a0b0c0d")) as store:
        began(store, "sent", start(), ATTEMPT)
        began(store, "waited", start())
        began(store, "read", start(side_effects="read"))
        began(store, "done", start(), ATTEMPT, end())
    with contextlib.closing(place.open_store("0e0f")) as store, contextlib.closing(place.open_reader()) as reader:
        assert recover(store, place.open_reader, sidecar="0e0f") == 3
        rows = reader.calls(["sent", "waited", "read", "done"])
        assert {call: row.state for call, row in rows.items()} == {
            "sent": CallState.UNKNOWN,
            "waited": CallState.ENDED,
            "read": CallState.ENDED,
            "done": CallState.ENDED,
        }
        sent, waited, read = (outcome(reader, call) for call in ("sent", "waited", "read"))
        assert (sent["code"], sent["retryable"]) == ("TOOL_OUTCOME_UNKNOWN", False)
        assert (waited["code"], waited["retryable"]) == ("TOOL_UNAVAILABLE", True)
        assert "nothing of it ran" in str(waited["message"])
        assert (read["code"], read["retryable"]) == ("TOOL_UNAVAILABLE", True)
        Checkpointer(SIGNER)(store)
        assert verify(reader, [SIGNER.verifier]).fault is None


@pytest.mark.parametrize("again", [None, 0, 60_000_000], ids=["not asked for", "no deadline", "a deadline"])
def test_what_may_run_again_is_left_open_until_its_time_is_over(tmp_path: Path, again: int | None) -> None:
    place = FilePlace(tmp_path / "journal.db")
    now_us = time.time_ns() // 1_000
    first = replace(start(), again_until_us=again if not again else now_us + again)
    entries = [
        encode(event, about("sent"), time_us=now_us, sidecar="0a0b0c0d", number=number, payloads=payloads)
        for number, event, payloads in ((1, first, (b"{}",)), (2, ATTEMPT, ()))
    ]
    interrupted = InterruptedCalls(3600.0)
    left = int(again is not None)
    with contextlib.closing(place.open_store("0e0f")) as store, contextlib.closing(place.open_reader()) as reader:
        store.write(entries)
        began(store, "other", replace(start(), again_until_us=now_us - 1), ATTEMPT)
        assert recover(store, place.open_reader, sidecar="0e0f", interrupted=interrupted) == 2 - left
        assert len(interrupted) == left
        end_late(store, reader, sidecar="0e0f", interrupted=interrupted)
        assert len(interrupted) == left
        if not left:
            return
        found = read_call(reader, "sent")
        assert found is not None
        marked = interrupted.marked(found)
        assert (marked.state, marked.events, marked.attempts) == (RecordedState.INTERRUPTED, 2, 1)
        assert marked.until_us == now_us + (again or 3_600_000_000)
        # The next sidecar comes when its time is over; the one after it finds nothing.
        late = InterruptedCalls(0.0)
        late.keeps(reader.calls(["sent"])["sent"], lambda: decode(reader.events_of_call("sent")[0].body), 0)
        end_late(store, reader, sidecar="0e0f", interrupted=late)
        assert (len(late), outcome(reader, "sent")["code"]) == (0, "TOOL_OUTCOME_UNKNOWN")
        assert recover(store, place.open_reader, sidecar="0e0f", interrupted=InterruptedCalls(3600.0)) == 0
        Checkpointer(SIGNER)(store)
        assert verify(reader, [SIGNER.verifier]).fault is None


def test_a_second_recovery_finds_nothing(place: Place) -> None:
    with contextlib.closing(place.open_store("0a0b0c0d")) as store:
        clock = Clock()
        store.write(
            [
                encode(event, about(f"call-{number}"), time_us=clock(), sidecar="0a0b0c0d", number=at, payloads=kept)
                for number in range(1200)
                for at, event, kept in ((1, start(), (b"{}",)), (2, ATTEMPT, ()))
            ]
        )
    with contextlib.closing(place.open_store("0e0f")) as store, contextlib.closing(place.open_reader()) as reader:
        assert recover(store, place.open_reader, sidecar="0e0f") == 1200
        size = reader.size()
        assert recover(store, place.open_reader, sidecar="0e0f") == 0
        assert reader.size() == size == 3600
        assert all(event.type == "execute_end" for event in reader.events(EventFilter(), after=2399, limit=9999))
