"""Several sidecars write one journal in PostgreSQL: one order, one outcome of each call, whoever is cut off."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from fumehood_evidence.verification import verify as verify_bundle
from fumehood_server.config.database import Database
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import CallState, Entry
from fumehood_server.journal.evidence import make_bundle
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.postgres.ownership import lock_key
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.recovery import recover
from fumehood_server.journal.retention import prune_events_slice
from fumehood_server.journal.store import (
    EventFilter,
    NewerJournalError,
    NoJournalError,
    Store,
    StoreError,
    UnequalSettingsError,
    load_tree,
)
from fumehood_server.journal.verify import verify
from fumehood_server.model.events import About, ExecuteTakenOver, LimitReached, OutcomeResolved

from tests.postgresql import PostgresServer

from .bench import ATTEMPT, STARTED_US, about, end, entries, start, written
from .several import ONE, OTHER, assert_whole, call, event, refused

MIB = 1024 * 1024


def state(place: DatabasePlace, call_id: str) -> CallState:
    with contextlib.closing(place.open_reader()) as reader:
        return reader.calls([call_id])[call_id].state


def close_and_wait(place: DatabasePlace, store: Store, sidecar: str) -> None:
    """Close it, and wait until the server has ended its session."""
    store.close()
    wait_until_dead(place, sidecar)


def wait_until_dead(place: DatabasePlace, sidecar: str) -> None:
    """Wait until the server has freed the locks of its session: a moment after the connection is closed."""
    held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = %s"
    with psycopg.connect(place.database.reveal()[0], autocommit=True) as admin:
        while admin.execute(held, (lock_key(sidecar) % (1 << 32),)).fetchone() is not None:
            time.sleep(0.001)


def test_two_writers_in_turn_make_one_log_that_either_key_verifies(database: DatabasePlace) -> None:
    with (
        contextlib.closing(database.open_store("one")) as one,
        contextlib.closing(database.open_store("other")) as other,
    ):
        all_entries, at = [*entries(500)], 0
        for turn in range(48):  # small groups, and such that the other's tree is read anew from tiles
            count = 300 if turn % 20 == 7 else 3
            store, signer = ((one, ONE), (other, OTHER))[turn // 3 % 2]
            group = all_entries[at : at + count]
            store.write(group)
            at += len(group)
            Checkpointer(signer)(store)
    # An entry of a call that the other sidecar began is that one's.
    assert {each for each in refused(all_entries) if each} <= {"another sidecar runs it, or has recorded how it ended"}
    size = sum(not each for each in refused(all_entries[:at]))
    assert_whole(database, size, ONE)
    assert_whole(database, size, OTHER)
    assert_whole(database, size, ONE, OTHER)
    with contextlib.closing(database.open_reader()) as reader:
        signed = [verify(reader, [each.verifier]).signed for each in (ONE, OTHER)]
        assert max(signed) == size
        first = next(each.subject for each in all_entries if each.subject)
        for signer in (ONE, OTHER):
            assert verify_bundle(make_bundle(reader, signer, call_id=first), [signer.verifier]).events >= 1


def test_an_id_is_one_sidecars_until_its_time_is_over(database: DatabasePlace) -> None:
    with (
        contextlib.closing(database.open_store("one")) as one,
        contextlib.closing(database.open_store("other")) as other,
    ):
        first, second = call("a"), call("a")
        one.write(first[:1])
        other.write(second)
        assert refused(second)[0] == "its call_id is another call's"
        assert all(refused(second))
        one.write(first[1:])
        assert not any(refused(first))
        again = call("a", time_us=STARTED_US + 3_599_000_000)
        other.write(again)
        assert all(refused(again))
        later = call("a", time_us=STARTED_US + 3_601_000_000)
        other.write(later)
        assert not any(refused(later))
        Checkpointer(ONE)(one)
    assert_whole(database, 6, ONE)


def test_calls_of_the_dead_are_settled_once_and_those_of_the_living_are_not(database: DatabasePlace) -> None:
    with (
        contextlib.closing(database.open_store("one")) as one,
        contextlib.closing(database.open_store("other")) as other,
    ):
        one.write([*call("sent")[:2], event(start(), "waits")])
        other.write(call("mine")[:2])
        assert recover(other, database.open_reader, sidecar="other") == 0  # both live
        close_and_wait(database, one, "one")
        assert recover(other, database.open_reader, sidecar="other") == 2
        assert (state(database, "sent"), state(database, "waits")) == (CallState.UNKNOWN, CallState.ENDED)
        with contextlib.closing(database.open_store("one")) as back:  # it was only cut off
            late = [event(end(), "sent"), event(ATTEMPT, "waits"), *call("new")]
            back.write(late)
            assert [bool(each) for each in refused(late)] == [True, True, False, False, False]
            assert recover(back, database.open_reader, sidecar="one") == 0
            assert state(database, "mine") is CallState.DISPATCHED
            settled = [event(OutcomeResolved(executed=True, by="me", reason="seen", result=None), "sent")] * 1
            back.write(settled)
            again = [event(OutcomeResolved(executed=False, by="you", reason="seen", result=None), "sent")]
            other.write(again)
            assert (refused(settled), bool(refused(again)[0])) == ([""], True)
        other.write([event(end(), "mine")])
        Checkpointer(OTHER)(other)
    with contextlib.closing(database.open_reader()) as reader:
        assert reader.counts().calls == reader.counts().ended == 4
    assert_whole(database, 12, OTHER)


def test_a_call_is_taken_over_once_and_from_the_dead_alone(database: DatabasePlace) -> None:
    def claim(call_id: str, *, number: int) -> Entry:
        taken = ExecuteTakenOver(from_sidecar="one")
        return encode(taken, about(call_id), time_us=STARTED_US, sidecar="0b", number=number)

    def told(call_id: str) -> Entry:
        return event(LimitReached(limit="x", value=1, usage=1, unit="", bound="", ended_by=""), call_id)

    with (
        contextlib.closing(database.open_store("one")) as one,
        contextlib.closing(database.open_store("other")) as other,
        contextlib.closing(database.open_store("third")) as third,
    ):
        one.write([*call("left")[:2], told("left"), *call("ended"), *call("settled")[:2]])
        living = claim("left", number=4)
        other.write([living])
        close_and_wait(database, one, "one")
        tries = [claim("left", number=3), claim("left", number=4), claim("ended", number=4), claim("none", number=1)]
        other.write(tries)
        late = claim("left", number=4)
        third.write([late])
        assert [bool(each) for each in refused([living, *tries, late])] == [True, True, False, True, True, True]
        assert recover(third, database.open_reader, sidecar="third") == 1  # what is "other"'s now stays open
        with contextlib.closing(database.open_store("one")) as back:
            said = [told("left"), event(ATTEMPT, "left"), event(end(), "left"), told("settled"), told("ended")]
            back.write(said)
            assert [bool(each) for each in refused(said)] == [True, True, True, True, False]
        rest = [event(ATTEMPT, "left"), event(end(), "left")]
        other.write(rest)
        assert refused(rest) == ["", ""]
        Checkpointer(ONE)(other)
    with contextlib.closing(database.open_reader()) as reader:
        assert reader.counts().calls == reader.counts().ended == 3
        assert reader.calls(["left"])["left"].owner == "other"
    assert_whole(database, 13, ONE)


def test_who_would_forget_calls_earlier_or_later_than_another_that_lives_is_refused(database: DatabasePlace) -> None:
    names = map(str, itertools.count())

    def opened(window_s: int, keep_events_d: float) -> contextlib.closing[Store]:
        place = DatabasePlace(database.database, window_s=window_s, keep_events_d=keep_events_d)
        return contextlib.closing(place.open_store(next(names)))

    with opened(3600, 36_500.0):
        for window_s, keep_events_d, key, values in (
            (60, 36_500.0, "call_id_window_s", "60 here and 3600 at"),
            (3600, 0.0, "keep_events_d", "0 here and 36500 at"),
            (3600, 36_499.5, "keep_events_d", "36499.5 here and 36500 at"),
        ):
            with pytest.raises(UnequalSettingsError, match=values) as caught:
                opened(window_s, keep_events_d)
            assert caught.value.key == key
        with opened(3600, 36_500.0) as same, contextlib.closing(database.open_store("a command")):
            assert same.write(call("a")) == 3
    deadline = time.monotonic() + 30
    while True:  # the server's processes of before have yet to find their connections closed
        try:
            alone = opened(60, 0.0)
            break
        except UnequalSettingsError:
            assert time.monotonic() < deadline
    with alone as store:
        assert store.write(call("b")) == 6


def test_who_is_cut_off_writes_nothing_before_it_is_known_to_live(database: DatabasePlace) -> None:
    with contextlib.closing(database.open_store("one")) as one:
        one.write(call("a")[:2])
        with psycopg.connect(database.database.reveal()[0], autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        with pytest.raises(StoreError):
            one.write([event(end(), "a")])
        wait_until_dead(database, "one")
        with (
            contextlib.closing(database.open_store("other")) as other,
            other.taking_over("one") as is_dead,
        ):
            assert is_dead
            with pytest.raises(StoreError, match="has not ended yet"):
                database.open_store("one")
    with contextlib.closing(database.open_store("one")) as back:
        entry = event(end(), "a")
        back.write([entry])
        assert entry.refused == ""


def test_what_others_append_and_remove_while_one_is_idle_is_in_its_tree(database: DatabasePlace) -> None:
    with (
        contextlib.closing(database.open_store("one")) as one,
        contextlib.closing(database.open_store("other")) as other,
    ):
        one.write([*entries(75)])
        other.write([*entries(75, first=75)])  # 226 and 225 events
        assert prune_events_slice(other, STARTED_US * 2, sidecar="0b") == 256
        assert one.write(call("late")) == 455
        Checkpointer(ONE)(one)
        assert prune_events_slice(one, STARTED_US * 2, sidecar="0a") == 0
    assert_whole(database, 455, ONE)


def test_a_frozen_server_is_given_up_and_used_again(database: DatabasePlace, postgres_server: PostgresServer) -> None:
    store, reader = database.open_store("one"), database.open_reader()
    with contextlib.closing(store), contextlib.closing(reader):
        group = call("a")
        store.write(call("before"))
        store._connection.answer_s = reader._connection.answer_s = 0.5
        with postgres_server.frozen():
            for attempt in (lambda: store.write(group), reader.size):
                with pytest.raises(StoreError, match=r"has not answered for 0\.5 s"):
                    attempt()
    deadline = time.monotonic() + 30
    while True:  # the server's process of before has yet to find its connection closed
        try:
            back = database.open_store("one")
            break
        except StoreError:
            assert time.monotonic() < deadline
    with contextlib.closing(back):
        back.write(group)
        Checkpointer(ONE)(back)
    assert_whole(database, 6, ONE)


def test_clocks_that_disagree_keep_nothing_from_being_found_by_its_time(database: DatabasePlace) -> None:
    with (
        contextlib.closing(database.open_store("one")) as one,
        contextlib.closing(database.open_store("other")) as other,
    ):
        for number in range(300):
            late_us = 5_000_000 if number % 2 else 0
            store = other if number % 2 else one
            store.write(call(f"call-{number}", time_us=STARTED_US + number * 1_000_000 - late_us))
    with contextlib.closing(database.open_reader()) as reader:
        for since, until in ((100, 200), (0, 3), (290, 0), (150, 151)):
            query = EventQuery(
                since_us=STARTED_US + since * 1_000_000, until_us=until and STARTED_US + until * 1_000_000
            )
            events = reader.events(EventFilter(), limit=1000)
            expected = [each.position for each in events if query.fits(each)]
            for newest_first in (False, True):
                found: list[int] = []
                rest: Span | None = Span(0, reader.size(), newest_first)
                while rest is not None:
                    page = reader.search(query, rest, Bounds(50, MIB, 100))
                    found += [each.position for each in page.events]
                    rest = page.rest
                assert found == (expected[::-1] if newest_first else expected)
            assert expected


def test_text_that_no_column_takes_is_recorded_and_verified_all_the_same(database: DatabasePlace) -> None:
    odd = About(call_id="odd", run_id="run\0one", tool="to\0ol", plugin="p\udcff", context={"session_id": "s\0"})
    with contextlib.closing(database.open_store("one")) as store:
        group = [event(each, "odd", of=odd) for each in (start(), ATTEMPT, end())]
        store.write(group)
        assert refused(group) == [""] * 3
        Checkpointer(ONE)(store)
    assert_whole(database, 3, ONE)


@pytest.mark.parametrize(
    ("sql", "position", "problem"),
    [
        ("UPDATE events SET body = 'x' WHERE position = 10", 10, "no event"),
        ("UPDATE events SET tool = 'other' WHERE position = 10", 10, "filed"),
        ("DELETE FROM events WHERE position = 13", 13, "missing"),
        ("DELETE FROM events WHERE position > 890", 891, "missing: a checkpoint was signed over 901"),
        ("UPDATE payloads SET data = 'x' WHERE position = 16", 16, "arguments or a result"),
        ("UPDATE calls SET state = 4 WHERE call_id = 'call-00000003'", 12, "shows otherwise"),
        ("DELETE FROM tiles WHERE tile = 2", 512, "another hash"),
        ("UPDATE checkpoints SET note = replace(note, '500', '499') WHERE size = 500", -1, "wrong"),
        ("UPDATE documents SET data = 'x'", -1, "document"),
    ],
)
def test_the_first_bad_record_is_named(filled: DatabasePlace, sql: str, position: int, problem: str) -> None:
    with psycopg.connect(filled.database.reveal()[0]) as connection, contextlib.closing(filled.open_reader()) as reader:
        assert verify(reader, [ONE.verifier]).fault is None
        connection.execute("SET search_path = fumehood")
        assert connection.execute(sql.encode()).rowcount > 0
        connection.commit()
        fault = verify(reader, [ONE.verifier]).fault
    assert fault is not None
    assert fault.position == position
    assert problem in fault.problem


@pytest.fixture(scope="module")
def template(postgres_server: PostgresServer) -> str:
    """A database with a journal of 901 events, and two checkpoints."""
    url = postgres_server.new_database()
    some = [*entries(300)]
    written(DatabasePlace(Database(url)), [some[:500], some[500:]], ONE)
    return url


@pytest.fixture
def filled(postgres_server: PostgresServer, template: str) -> DatabasePlace:
    return DatabasePlace(Database(postgres_server.new_database(template=template)))


def test_the_tree_is_the_same_from_tiles_and_from_its_start(filled: DatabasePlace) -> None:
    with contextlib.closing(filled.open_store("new")) as store:
        assert store.tree().root() == load_tree(filled.open_reader()).root()


def test_a_schema_is_made_by_one_of_those_who_come_first_and_a_newer_one_is_refused(database: DatabasePlace) -> None:
    with pytest.raises(NoJournalError):
        database.open_reader()
    stores: list[object] = []
    threads = [
        threading.Thread(target=lambda name=f"s{number}": stores.append(database.open_store(name)))  # type: ignore[misc]
        for number in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(stores) == 4
    *rest, last = stores
    for each in rest:
        each.close()  # type: ignore[attr-defined]
    with psycopg.connect(database.database.reveal()[0]) as connection:
        connection.execute("UPDATE fumehood.head SET version = version + 1")
    with pytest.raises(StoreError, match="a newer sidecar"):  # it was brought there while this one served
        last.write(call("a"))  # type: ignore[attr-defined]
    last.close()  # type: ignore[attr-defined]
    for open_it in (database.open_reader, lambda: database.open_store("new")):
        with pytest.raises(NewerJournalError, match="run the newer sidecar"):
            open_it()


def test_no_error_shows_a_password(tmp_path: Path) -> None:
    host = quote(str(tmp_path), safe="")
    for url in (f"postgresql://me:hunter22@/db?host={host}", f"postgresql://me@/db?host={host}&password=hunter22"):
        database = Database(url)
        assert "hunter22" not in f"{database} {database!r}"
        with pytest.raises(StoreError) as raised:
            DatabasePlace(database).open_reader()
        assert "hunter22" not in str(raised.value)
        assert "me@" in str(raised.value)


def test_serving_without_psycopg_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[journal]\nstore = "postgresql://me@/journal"\n')
    hidden = "import sys; sys.modules['psycopg'] = None; from fumehood_server.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "serve", "--config", str(tmp_path / "fumehood.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert '"./server[postgresql]" in a clone, or "fumehood-server[postgresql]" from an index' in done.stderr
