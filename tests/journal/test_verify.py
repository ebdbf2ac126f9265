"""A journal is what was signed, or the first record that is not is named."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from fumehood_evidence.note import Signer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.store import NewerJournalError, StoreError
from fumehood_server.journal.verify import Verified, verify
from fumehood_server.model.events import NOBODY, PayloadsPruned

from .bench import STARTED_US, entries, written

STRIDE = int(os.environ.get("JOURNAL_STRIDE", "151"))
"""1: every byte, some minutes."""
SIGNER = Signer.generate("test/journal")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 901 events, with two checkpoints, in one file."""
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    all_entries = [*entries(300)]
    written(path, [all_entries[:500], all_entries[500:]], SIGNER)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # nothing is left in the write-ahead log
    return path


@pytest.fixture
def copy(journal: Path, tmp_path: Path) -> Path:
    return shutil.copy(journal, tmp_path / "copy.db")


def verified(path: Path) -> Verified:
    with contextlib.closing(SqliteReader(path)) as reader:
        return verify(reader, [SIGNER.verifier])


def changed(path: Path, sql: str, *values: object) -> Verified:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, values).rowcount > 0
    return verified(path)


def test_an_untouched_journal_is_what_was_signed(journal: Path) -> None:
    found = verified(journal)
    assert (found.events, found.signed, found.payloads, found.fault) == (901, 901, 600, None)


@pytest.mark.parametrize(
    ("sql", "position", "problem"),
    [
        ("UPDATE events SET body = CAST('x' AS BLOB) WHERE position = 10", 10, "no event"),
        ("UPDATE events SET body = CAST(replace(body, '0a0b0c0d', '0a0b0c0e') AS BLOB) WHERE position = 10", 0, "hash"),
        ("UPDATE events SET body = CAST(replace(body, '0a0b0c0d', '1') AS BLOB) WHERE position = 890", 500, "changed"),
        ("UPDATE events SET tool = 'other' WHERE position = 10", 10, "filed"),
        ("UPDATE events SET time_us = time_us + 1 WHERE position = 11", 11, "filed"),
        ("UPDATE events SET subject = '' WHERE position = 12", 12, "filed"),
        ("DELETE FROM events WHERE position = 13", 13, "missing"),
        ("DELETE FROM events WHERE position > 890", 891, "missing: a checkpoint was signed over 901"),
        ("UPDATE payloads SET data = CAST('x' AS BLOB) WHERE position = 16", 16, "arguments or a result"),
        ("DELETE FROM calls WHERE call_id = 'call-00000003'", 10, "shows otherwise"),
        ("UPDATE calls SET tool = 'other' WHERE call_id = 'call-00000003'", 10, "shows otherwise"),
        ("UPDATE calls SET state = 4 WHERE call_id = 'call-00000003'", 12, "shows otherwise"),
        ("UPDATE calls SET end_position = NULL WHERE call_id = 'call-00000003'", 12, "shows otherwise"),
        ("UPDATE calls SET arguments_hash = x'00' WHERE call_id = 'call-00000003'", 10, "shows otherwise"),
        ("UPDATE tiles SET hashes = zeroblob(8192) WHERE tile = 1", 256, "another hash"),
        ("DELETE FROM tiles WHERE tile = 2", 512, "another hash"),
        ("UPDATE checkpoints SET note = replace(note, '500', '499') WHERE size = 500", -1, "wrong"),
        ("UPDATE checkpoints SET size = 499 WHERE size = 500", -1, "one over 500"),
        ("UPDATE documents SET data = CAST('x' AS BLOB)", -1, "document"),
    ],
)
def test_the_first_bad_record_is_named(copy: Path, sql: str, position: int, problem: str) -> None:
    fault = changed(copy, sql).fault
    assert fault is not None
    assert fault.position == position
    assert any(part in fault.problem for part in problem.split("|")), fault.problem


def test_payloads_are_removed_by_an_event_that_says_so_and_not_otherwise(copy: Path) -> None:
    fault = changed(copy, "DELETE FROM payloads WHERE position < 100").fault
    assert fault is not None
    assert (fault.position, fault.problem.split(",")[0]) == (1, "has lost its arguments or its result")
    pruned = encode(PayloadsPruned(up_to=100, count=66), NOBODY, time_us=STARTED_US * 2, sidecar="0a0b0c0d")
    written(copy, [[pruned]], SIGNER)
    found = verified(copy)
    assert (found.fault, found.events) == (None, 902)
    assert found.payloads < 600


def test_what_is_written_meanwhile_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    batches = [[*entries(1, first=number)] for number in range(520)]
    written(path, batches, SIGNER)

    def write_more(_read: int, _of: int) -> None:
        written(path, [[*entries(1, first=1000)]], SIGNER)

    with contextlib.closing(SqliteReader(path)) as reader, reader.snapshot():
        assert verify(reader, [SIGNER.verifier], progress=write_more).fault is None
    assert verified(path).fault is None


def test_a_settled_outcome_is_no_fault_and_one_that_nobody_settled_is(copy: Path) -> None:
    fault = changed(copy, "UPDATE calls SET state = 5 WHERE call_id = 'call-00000003'").fault
    assert fault is not None
    assert "shows otherwise" in fault.problem


def test_what_no_event_speaks_of_is_a_fault(copy: Path) -> None:
    fault = changed(copy, "INSERT INTO payloads VALUES (12, 5, CAST('x' AS BLOB))").fault
    assert fault is not None
    assert "no event speaks" in fault.problem


def test_a_journal_by_another_key_is_not_taken_for_ours(journal: Path) -> None:
    with contextlib.closing(SqliteReader(journal)) as reader:
        fault = verify(reader, [Signer.generate("test/journal").verifier]).fault
    assert fault is not None
    assert "none of the keys" in fault.problem


def test_no_flipped_byte_of_the_file_goes_unnoticed_where_it_changes_what_is_read(
    tmp_path: Path,
) -> None:
    """Bytes that hold nothing, such as the rest of a page, may be anything: what is read then is the same."""
    small = tmp_path / "small.db"
    written(small, [[*entries(4)]], SIGNER)
    with contextlib.closing(sqlite3.connect(small)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    whole = small.read_bytes()
    before = _dump(small)
    flipped = tmp_path / "flipped.db"
    unnoticed = []
    for at in range(0, len(whole), STRIDE):
        data = bytearray(whole)
        data[at] ^= 0x10
        flipped.write_bytes(data)
        try:
            noticed = verified(flipped).fault is not None
        except (NewerJournalError, StoreError):  # it can't even be opened
            noticed = True
        if not noticed and _dump(flipped) != before:
            unnoticed.append(at)
    assert not unnoticed


def _dump(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = ("events", "calls", "payloads", "tiles", "checkpoints", "documents")
        return [row for table in tables for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 - ours
