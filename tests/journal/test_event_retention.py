"""Whole events go after a time; the tree, and the proof of what is left, stand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood_evidence.note import Signer
from fumehood_evidence.verification import verify as verify_bundle
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.evidence import EventsPrunedError, NoEvidenceError, make_bundle
from fumehood_server.journal.place import FilePlace, Place
from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.retention import SLICE_EVENTS, prune_events_slice, prune_slice
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import Verified, verify
from fumehood_server.model.events import Event, OutcomeResolved

from tests.cli.command import fumehood
from tests.rpc.support import ToolClient, call
from tests.sidecar import running_sidecar, write_plugin

from .bench import ATTEMPT, STARTED_US, Clock, about, end, entries, start, written
from .conftest import STORES, new_place
from .reading import BOUND_S, Recorded
from .test_retention import CODE

SIGNER = Signer.generate("test/journal")
CALLS = 1_500
EVER_US = STARTED_US * 2


def of_call(call_id: str, clock: Clock, number: int, *events: Event) -> list[Entry]:
    payloads = {"execute_start": (b"{}",), "execute_end": (b"[]",)}
    return [
        encode(
            each,
            about(call_id),
            time_us=clock(),
            sidecar="0a",
            number=number + at,
            payloads=payloads.get(each.TYPE, ()),
        )
        for at, each in enumerate(events)
    ]


def filled(place: Place) -> None:
    """Of calls whose events lie side by side, and some at the beginning whose last event comes late or never."""
    clock = Clock()
    unknown = replace(end(), outcome_unknown=True)
    first = [
        *of_call("open", clock, 1, start(), ATTEMPT),
        *of_call("unknown", clock, 1, start(), ATTEMPT, unknown),
        *of_call("settled", clock, 1, start(), ATTEMPT, unknown),
        *of_call("long", clock, 1, start(), ATTEMPT),
        *of_call("again", clock, 1, start(), ATTEMPT, end()),
    ]
    between = [*entries(CALLS, clock=clock)]
    resolved = OutcomeResolved(executed=False, by="a person", reason="looked", result=None)
    last = [
        *of_call("settled", clock, 4, resolved),
        *of_call("long", clock, 3, end()),
        *of_call("again", clock, 1, start(), ATTEMPT, end()),
        *entries(200, clock=clock, first=CALLS),
    ]
    written(place, [[*first, *between[:2000]], [*between[2000:], *last]], SIGNER)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = new_place(request, tmp_path_factory, window_s=0.0)  # an id is used again at once
    filled(place)
    return place


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "journal.db"
    filled(FilePlace(path))
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """Of a journal of the test's own."""
    return Path(shutil.copy(made, tmp_path))


def verified(place: Place) -> Verified:
    with contextlib.closing(place.open_reader()) as reader:
        return verify(reader, [SIGNER.verifier])


def pruned(place: Place, before_us: int = EVER_US, *, slices: int = 1_000) -> int:
    """How many events were come by."""
    with contextlib.closing(place.open_store("0a")) as store:
        count = passed = 0
        while count < slices and (some := prune_events_slice(store, before_us, sidecar="0a")):
            count, passed = count + 1, passed + some
        Checkpointer(SIGNER)(store)
    return passed


def kept(place: Place) -> set[str]:
    with contextlib.closing(place.open_reader()) as reader:
        return {*reader.calls(["open", "unknown", "settled", "long", "again"])}


def test_events_go_in_slices_and_what_is_left_is_proven_as_before(place: Place) -> None:
    before = verified(place)
    with contextlib.closing(place.open_reader()) as reader:
        earlier = [note for _, note in reader.checkpoints()]
    assert pruned(place, slices=2) == 2 * SLICE_EVENTS
    found = verified(place)
    assert (found.fault, found.events, found.removed_up_to) == (None, before.events + 2, 2 * SLICE_EVENTS)
    # All calls that are not settled before that, and of one id the last call alone.
    assert kept(place) == {"open", "unknown", "settled", "long", "again"}
    assert found.removed_events == 2 * SLICE_EVENTS - (2 + 3 + 3 + 2)
    late_us = STARTED_US + 4_700
    pruned(place, late_us)
    found = verified(place)
    assert found.fault is None
    assert found.signed == found.events
    assert found.removed_up_to == 4_608
    # Besides these two a call stays whose end is the next event.
    assert found.removed_events == found.removed_up_to - (2 + 3 + 2)
    assert kept(place) == {"open", "unknown"}
    with contextlib.closing(place.open_reader()) as reader:
        assert pruned_so_far(reader).removed == found.removed_events
        last = verify_bundle(make_bundle(reader, SIGNER, call_id="call-00001699", earlier=earlier), [SIGNER.verifier])
        assert (last.calls[0].outcome, last.earlier) == ("OK", len(earlier))
        assert verify_bundle(make_bundle(reader, SIGNER, call_id="unknown"), [SIGNER.verifier]).events == 3
        with pytest.raises(EventsPrunedError, match="retention has removed") as caught:
            make_bundle(reader, SIGNER, call_id="call-00000003")
        assert caught.value.pruned.up_to == found.removed_up_to
    assert pruned(place, late_us) == 0


def within(place: Place, since_us: int, until_us: int) -> list[int]:
    with contextlib.closing(place.open_reader()) as reader:
        return [each.position for each in reader.events(EventFilter(since_us=since_us, until_us=until_us), limit=9_999)]


def test_what_is_not_old_enough_stays_and_is_found_by_its_time(place: Place) -> None:
    middle_us = STARTED_US + 2_500
    pruned(place, middle_us)
    with contextlib.closing(place.open_reader()) as reader:
        up_to = verified(place).removed_up_to
        assert up_to == 2_500 // 256 * 256
        for since_us in (STARTED_US, STARTED_US + 4, STARTED_US + 300, STARTED_US + up_to + 1, middle_us):
            query = EventQuery(since_us=since_us, until_us=middle_us + 2)
            found = reader.search(query, Span(0, reader.size()), Bounds(10_000, 1 << 24)).events
            assert [each.position for each in found] == within(place, since_us, middle_us + 2)
        assert set(reader.call_ids(middle_us)) >= {"again", "call-00001699"}
        with pytest.raises(EventsPrunedError):
            make_bundle(reader, SIGNER, call_id="call-00000003")


def test_an_untouched_journal_has_no_evidence_of_what_never_was(path: Path) -> None:
    with contextlib.closing(SqliteReader(path)) as reader, pytest.raises(NoEvidenceError) as caught:
        make_bundle(reader, SIGNER, call_id="never")
    assert not isinstance(caught.value, EventsPrunedError)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DELETE FROM events WHERE position = 1", "events are gone"),
        ("DELETE FROM events WHERE subject = 'unknown'", "no event speaks"),
        ("UPDATE tiles SET hashes = CAST(x'00' || substr(hashes, 2) AS BLOB) WHERE level = 0 AND tile = 3", "changed"),
        ("DELETE FROM tiles WHERE level = 0 AND tile = 3", "lost its hash"),
        ("DELETE FROM events WHERE position = (SELECT max(position) - 3 FROM events)", "missing"),
        (
            "UPDATE events SET body = CAST(replace(body, 'up_to', 'up_tp') AS BLOB) WHERE type = 'events_pruned'",
            "event",
        ),
    ],
)
def test_what_retention_has_not_removed_is_missed(path: Path, sql: str, problem: str) -> None:
    pruned(FilePlace(path))
    assert verified(FilePlace(path)).fault is None
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql).rowcount > 0
    fault = verified(FilePlace(path)).fault
    assert fault is not None
    assert problem in fault.problem


def test_payloads_that_went_before_their_events_are_not_missed(path: Path) -> None:
    with contextlib.closing(SqliteStore(path)) as store:
        while prune_slice(store, EVER_US, sidecar="0a"):
            pass
        store.write([*entries(600, clock=_later(), first=5_000)])
    pruned(FilePlace(path))
    found = verified(FilePlace(path))
    assert (found.fault, found.removed) == (None, 3)
    with contextlib.closing(SqliteReader(path)) as reader:
        assert reader.last("payloads_pruned") is None


def _later() -> Clock:
    clock = Clock()
    clock._now = EVER_US - 10_000_000
    return clock


async def test_a_sidecar_removes_by_itself_and_says_up_to_where(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "plugin", "dice", CODE)
    recorded = Recorded(tmp_path)
    more = "[journal]\ncall_id_window_s = 0\nkeep_events_d = 0.00001\n"
    evidence = ["journal", "evidence", "-o", str(tmp_path / "page.html"), "--config", str(tmp_path / "fumehood.toml")]
    with running_sidecar([plugin], more=more, at=tmp_path) as sidecar:
        async with sidecar.channel() as channel:
            client = ToolClient(sidecar, channel)
            journal: Any = JournalServiceStub(channel)
            await client.tools.CallTool(call("roll", call_id="one"))

            async def removed_before() -> int:
                await asyncio.gather(*(client.tools.CallTool(call("roll")) for _ in range(40)))
                return int((await journal.ListEvents(journal_pb.ListEventsRequest())).removed_before)

            async with asyncio.timeout(BOUND_S):
                while not (up_to := await removed_before()):  # noqa: ASYNC110 - by time alone
                    await asyncio.sleep(0.1)
            assert up_to % 256 == 0
            watched = journal.WatchEvents(journal_pb.WatchEventsRequest())
            assert (await watched.read()).removed_before >= up_to
            watched.cancel()
            refused = fumehood(*evidence, "--call", "one")
    assert refused.status == 1
    assert "retention has removed" in refused.stderr
    found = recorded.verified()
    assert (found.fault, found.removed_events > 200) == (None, True)
    assert recorded.call("one") == []
    assert recorded.events("plugin_pinned"), "a pin is kept"
    prune = ["journal", "prune", "--before", "0d", "--events", "--json", "--config", str(tmp_path / "fumehood.toml")]
    trigger = "CREATE TRIGGER full BEFORE DELETE ON payloads BEGIN SELECT RAISE(ABORT, 'no room is left'); END"
    with contextlib.closing(sqlite3.connect(recorded.path)) as connection:
        connection.execute(trigger)
        failed = fumehood(*prune)
        assert (failed.status, failed.error["code"]) == (1, "JOURNAL_UNREADABLE")
        assert "stopped half-way" in failed.error["message"]
        connection.execute("DROP TRIGGER full")
    done = fumehood(*prune)
    assert json.loads(done.stdout).keys() == {"removed", "removed_events"}
    assert recorded.verified().fault is None
    (tmp_path / "fumehood.toml").write_text("")
    assert fumehood(*prune).status == 2, "calls of the last day may be repeated"
