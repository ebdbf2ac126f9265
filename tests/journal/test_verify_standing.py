"""Rows of standing approvals that are not what the events say are found; and what retention removes of them is none."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fumehood_evidence.note import Signer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.place import FilePlace, Place
from fumehood_server.journal.retention import prune_events_slice
from fumehood_server.journal.verify import Verified, verify
from fumehood_server.model.events import Event
from fumehood_server.model.policy import Condition
from fumehood_server.model.standing import Revocation, Standing
from fumehood_server.model.standing_changes import Grant, Revoke, UseStanding
from fumehood_server.model.standing_events import StandingRevoked, StandingUsed, granted_event

from .bench import STARTED_US, Clock, about, end, entries, start, written
from .test_verify_approvals import SUBJECT

SIGNER = Signer.generate("test/standing")
LATER_US = time.time_ns() // 1_000 + 3_600_000_000
CALLS = 200


def standing(name: str, **changes: Any) -> Standing:
    found = Standing(
        standing_id=f"standing-{name}",
        approval_id=f"approval-{name}",
        call_id=f"first-{name}",
        run_id="run-1",
        asked_from="ipv4:127.0.0.1:1",
        plugin="files",
        side_effects="write",
        subject=replace(SUBJECT, arguments_sha256=""),
        rules=("r",),
        session_id="",
        conditions=(Condition(pointer="/path", equals=("x", 1, 2.5, True), pattern="^x", min=1.0),),
        calls=0,
        granted_us=1,
        until_us=LATER_US,
        by="Ann",
        authenticated_by="token",
        connection="ipv4:2",
        reason="so",
    )
    return replace(found, **changes)


class Writer:
    """Entries as a sidecar makes them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def _made(self, event: Event, call_id: str, number: int = 0, payloads: tuple[bytes, ...] = ()) -> Entry:
        return encode(event, about(call_id), time_us=self._clock(), sidecar="0a", number=number, payloads=payloads)

    def grant(self, found: Standing) -> Entry:
        entry = self._made(granted_event(found), found.call_id)
        entry.standing = Grant(found)
        return entry

    def use(self, found: Standing, call_id: str) -> Iterator[Entry]:
        first = self._made(start(), call_id, 1, (b"{}",))
        first.standing = UseStanding(found.standing_id, SUBJECT, "", ("r",))
        yield first
        told = StandingUsed(
            standing_id=found.standing_id, digest=SUBJECT.digest, granted_with=found.call_id, approvers=("Ann",)
        )
        second = self._made(told, call_id, 2)
        second.requires = first
        yield second
        yield self._made(end(), call_id, 3, (b"[]",))

    def revoke(self, found: Standing) -> Entry:
        said = {"by": "Bob", "authenticated_by": "token", "connection": "ipv4:3", "reason": "no", "at_us": 5}
        entry = self._made(StandingRevoked(standing_id=found.standing_id, **said), found.call_id)
        entry.standing = Revoke(found.standing_id, Revocation(**said))
        return entry


SPENT, OPEN, REVOKED, FRESH, LATE = (
    standing("spent", calls=1),
    standing("open"),
    standing("revoked"),
    standing("fresh"),
    standing("late", until_us=STARTED_US),
)


def write_standing(place: Place, clock: Clock) -> None:
    writer = Writer(clock)
    batch = [writer.grant(each) for each in (SPENT, OPEN, REVOKED, FRESH, LATE)]
    for found, call_id in ((SPENT, "u1"), (OPEN, "u2"), (OPEN, "u3"), (REVOKED, "u4")):
        batch += writer.use(found, call_id)
    refused = [*writer.use(SPENT, "u5")][:2]
    written(place, [[*batch, writer.revoke(REVOKED), *refused]], SIGNER)
    assert [bool(each.refused) for each in refused] == [True, True], "it is used up, and nothing of the call is kept"


def verified(place: Place) -> Verified:
    with contextlib.closing(place.open_reader()) as reader, reader.snapshot():
        return verify(reader, [SIGNER.verifier])


def kept(place: Place) -> dict[str, int]:
    with contextlib.closing(place.open_reader()) as reader:
        rows = reader.standing_approvals(limit=100)
        return {each.standing_id.removeprefix("standing-"): Standing.from_json(each.record).used for each in rows}


def test_standing_approvals_as_they_were_given_and_used_are_what_their_events_say(place: Place) -> None:
    write_standing(place, Clock())
    found = verified(place)
    assert (found.fault, found.events, found.signed) == (None, 18, 18)
    assert kept(place) == {"spent": 1, "open": 2, "revoked": 1, "fresh": 0, "late": 0}


def test_those_that_may_still_be_used_outlive_their_events(place: Place) -> None:
    clock = Clock()
    write_standing(place, clock)
    written(place, [[*entries(CALLS, clock=clock)]], SIGNER)
    with contextlib.closing(place.open_store("0a0b0c0d")) as store:
        while prune_events_slice(store, STARTED_US * 2, sidecar="0a"):
            pass
    assert kept(place) == {"open": 2, "fresh": 0}
    found = verified(place)
    assert (found.fault, found.removed_up_to > 18) == (None, True)
    writer = Writer(itertools.count(LATER_US - 1_000_000).__next__)  # after what retention recorded
    written(place, [[*writer.use(OPEN, "u6"), *writer.use(FRESH, "u7"), writer.revoke(FRESH)]])
    assert kept(place) == {"open": 3, "fresh": 1}
    assert verified(place).fault is None


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("standing") / "journal.db"
    write_standing(FilePlace(path), Clock())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


Record = dict[str, Any]


def put(name: str, value: Any) -> Callable[[Record], object]:
    return lambda record: record.update({name: value})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("open", put("used", 1)),
        ("open", put("used", 3)),
        ("fresh", put("calls", 5)),
        ("spent", put("calls", 2)),
        ("spent", put("used", 0)),
        ("fresh", put("until_us", LATER_US + 1)),
        ("fresh", put("conditions", [])),
        ("fresh", lambda record: record["conditions"][0].update(equals=["x", True, 2.5, 1])),
        ("fresh", put("session_id", "s")),
        ("fresh", put("rules", ["r", "more"])),
        ("fresh", put("by", "Bob")),
        ("fresh", put("plugin", "other")),
        ("fresh", lambda record: record["subject"].update(caller="Bob")),
        ("fresh", lambda record: record["subject"].update(sandbox="wider")),
        ("fresh", put("revoked", {"by": "", "authenticated_by": "", "connection": "", "reason": "", "at_us": 0})),
        ("revoked", put("revoked", None)),
        ("revoked", lambda record: record["revoked"].update(by="Ann")),
    ],
)
def test_a_row_that_says_something_else_is_found(
    journal: Path, tmp_path: Path, name: str, change: Callable[[Record], object]
) -> None:
    path = shutil.copy(journal, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        sql = "SELECT record FROM standing_approvals WHERE standing_id = ?"
        record = json.loads(connection.execute(sql, (f"standing-{name}",)).fetchone()[0])
        change(record)
        data = json.dumps(record).encode()
        found = Standing.from_json(data)
        sql = "UPDATE standing_approvals SET record = ?, binding = ?, is_open = ?, until_us = ? WHERE standing_id = ?"
        connection.execute(sql, (data, found.binding, found.is_open, found.until_us, f"standing-{name}"))
    fault = verified(FilePlace(path)).fault
    assert fault is not None
    assert "standing" in fault.problem


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM standing_approvals WHERE standing_id = 'standing-fresh'",
        "DELETE FROM standing_approvals WHERE standing_id = 'standing-spent'",
        "UPDATE standing_approvals SET is_open = NOT is_open WHERE standing_id = 'standing-spent'",
        "UPDATE standing_approvals SET is_open = NOT is_open WHERE standing_id = 'standing-fresh'",
        "UPDATE standing_approvals SET until_us = until_us + 1 WHERE standing_id = 'standing-fresh'",
        "UPDATE standing_approvals SET binding = 'x' WHERE standing_id = 'standing-fresh'",
        "UPDATE standing_approvals SET position = position + 1 WHERE standing_id = 'standing-open'",
        "UPDATE standing_approvals SET standing_id = 'standing-other' WHERE standing_id = 'standing-fresh'",
        "INSERT INTO standing_approvals SELECT 'more', binding, 1, until_us, 1, record FROM standing_approvals LIMIT 1",
        "UPDATE standing_approvals SET record = CAST('x' AS BLOB) WHERE standing_id = 'standing-late'",
    ],
)
def test_a_row_too_many_too_few_or_filed_elsewhere_is_found(journal: Path, tmp_path: Path, sql: str) -> None:
    path = shutil.copy(journal, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql).rowcount == 1
    assert verified(FilePlace(path)).fault is not None
