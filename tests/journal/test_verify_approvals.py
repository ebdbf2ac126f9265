"""Rows of approvals that are not what the events say are found, whichever way they are changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fumehood_evidence.note import Signer
from fumehood_server.journal.approvals import ApprovalRecords
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.place import FilePlace, Place
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.standing_approvals import StandingRecords
from fumehood_server.journal.verify import Verified, verify
from fumehood_server.model.approval_changes import Use
from fumehood_server.model.approval_events import ApprovalUsed
from fumehood_server.model.approvals import Approval, Asked, Choice, Subject
from fumehood_server.model.caller import Authentication, Caller
from fumehood_server.model.policy import Requirement
from fumehood_server.model.tool import Payloads
from fumehood_server.policy.desk import ApprovalDesk
from fumehood_server.policy.interfaces import DeskSettings

from .bench import about, end, start

SIGNER = Signer.generate("test/approvals")
SUBJECT = Subject(
    tool="write_file",
    arguments_sha256="a" * 64,
    definition="sha256:d",
    plugin="sha256:p",
    caller="asker",
    caller_authenticated_by="token",
    policy="v1",
    permission="require_approval",
)
SETTINGS = DeskSettings(decide_within_s=3600.0, use_within_s=600.0, max_open=100, standing_max_s=3600.0)
AT_ONCE = replace(SETTINGS, decide_within_s=0.001)


def asked(call_id: str, approvals: int = 1) -> Asked:
    return Asked(
        call_id=call_id,
        run_id="run-1",
        context={},
        plugin="files",
        side_effects="write",
        subject=SUBJECT,
        arguments_json='{"path": "x"}',
        payloads=Payloads.FULL,
        requirements=(Requirement(rule="r", approvals=approvals),),
        connection="ipv4:127.0.0.1:1",
    )


async def write_approvals(place: Place) -> None:
    """One in each state, beside a call."""
    async with StoredJournal(
        lambda: place.open_store("one"),
        place.open_reader,
        sidecar="one",
        on_state=lambda _: None,
        window_s=3600.0,
        upkeep=Checkpointer(SIGNER),
        reads=JournalReads(place, list),
    ) as journal:
        if journal.reads is None:
            raise AssertionError
        records, standing = ApprovalRecords(journal, journal.reads), StandingRecords(journal, journal.reads)
        desk = ApprovalDesk(records, standing, lambda: SETTINGS)

        async def decided(call_id: str, choice: Choice, *, approvals: int = 1, **fields: Any) -> Approval:
            found = await desk.obtain(asked(call_id, approvals))
            by = Caller(name="Ann", authenticated_by=Authentication.TOKEN, connection="ipv4:2")
            return await desk.decide(found, choice, by, reason="so", digest=found.digest, **fields)

        await desk.obtain(asked("pending"))
        await decided("half", Choice.APPROVE, approvals=2)
        await decided("approved", Choice.APPROVE)
        await decided("denied", Choice.DENY)
        await decided("withdrawn", Choice.WITHDRAW)
        edited = replace(SUBJECT, arguments_sha256="b" * 64)
        await decided("edited", Choice.APPROVE, edited=edited, edited_json='{"path": "y"}')
        async with ApprovalDesk(records, standing, lambda: AT_ONCE) as quick:
            await quick.decided(await quick.obtain(asked("expired")), quick.grants)
        used = await decided("used", Choice.APPROVE)
        of = about("used")
        use = Use(used.approval_id, "used", used.digest)
        told = ApprovalUsed(approval_id=used.approval_id, digest=used.digest, approvers=("Ann",))
        await journal.commit_approved(start(), of, (b"{}",), use, told)
        await journal.commit(end(), of, (b"[]",))


def verified(place: Place) -> Verified:
    with contextlib.closing(place.open_reader()) as reader, reader.snapshot():
        return verify(reader, [SIGNER.verifier])


async def test_approvals_as_they_were_decided_are_what_their_events_say(place: Place) -> None:
    await write_approvals(place)
    found = await asyncio.to_thread(verified, place)
    assert (found.fault, found.events, found.signed) == (None, 18, 18)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("approvals") / "journal.db"
    asyncio.run(write_approvals(FilePlace(path)))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


Record = dict[str, Any]


def other_state(state: str) -> Callable[[Record], object]:
    return lambda record: record.update(state=state)


def another_word(record: Record) -> None:
    record["decisions"].append({**record["decisions"][0], "by": "Bob", "connection": "ipv4:3"})
    record["state"] = "approved"
    record["expires_us"] += 10**12


@pytest.mark.parametrize(
    ("call_id", "change"),
    [
        ("pending", other_state("approved")),
        ("half", other_state("approved")),
        ("half", another_word),
        ("denied", other_state("pending")),
        ("withdrawn", other_state("pending")),
        ("expired", other_state("pending")),
        ("used", other_state("approved")),
        ("approved", lambda record: record["subject"].update(arguments_sha256="c" * 64)),
        ("approved", lambda record: record.update(expires_us=record["expires_us"] + 1)),
        ("approved", lambda record: record["decisions"][0].update(by="Bob")),
        ("pending", lambda record: record.update(asked_json="{}", arguments_json="{}")),
        ("pending", lambda record: record["asked"].update(caller="Bob")),
        ("edited", lambda record: record.update(subject=record["asked"])),
        ("edited", lambda record: record.update(arguments_json='{"path": "x"}')),
        ("approved", lambda record: record.update(call_id="pending")),
    ],
)
def test_a_row_that_says_something_else_is_found(
    journal: Path, tmp_path: Path, call_id: str, change: Callable[[Record], object]
) -> None:
    path = shutil.copy(journal, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        sql = "SELECT position, record FROM approvals WHERE call_id = ?"
        ((position, data),) = connection.execute(sql, (call_id,)).fetchall()
        record = json.loads(data)
        change(record)
        is_open = record["state"] in {"pending", "approved"}
        sql = "UPDATE approvals SET record = ?, is_open = ? WHERE call_id = ?"
        connection.execute(sql, (json.dumps(record).encode(), is_open, call_id))
    fault = verified(FilePlace(path)).fault
    assert fault is not None
    assert (fault.position, "approvals shows" in fault.problem) == (position, True)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM approvals WHERE call_id = 'denied'",
        "UPDATE approvals SET is_open = NOT is_open WHERE call_id = 'pending'",
        "UPDATE approvals SET is_open = NOT is_open WHERE call_id = 'used'",
        "UPDATE approvals SET call_id = 'other' WHERE call_id = 'approved'",
        "UPDATE approvals SET approval_id = 'other' WHERE call_id = 'approved'",
        "UPDATE approvals SET position = position - 1 WHERE call_id = 'used'",
        "UPDATE approvals SET position = position + 1 WHERE call_id = 'used'",
        "UPDATE approvals SET position = position + 2 WHERE call_id = 'used'",
        "UPDATE approvals SET position = position - 1 WHERE call_id = 'approved'",
        "INSERT INTO approvals SELECT 'more', call_id, is_open, position, record FROM approvals WHERE call_id = 'used'",
        "INSERT INTO approvals SELECT 'more', call_id, is_open, 99, record FROM approvals WHERE call_id = 'used'",
        "INSERT INTO approvals SELECT 'more', call_id, 1, -1, record FROM approvals WHERE call_id = 'pending'",
        "UPDATE approvals SET record = CAST('x' AS BLOB) WHERE call_id = 'denied'",
    ],
)
def test_a_row_too_many_too_few_or_under_another_event_is_found(journal: Path, tmp_path: Path, sql: str) -> None:
    path = shutil.copy(journal, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql).rowcount == 1
    assert verified(FilePlace(path)).fault is not None
