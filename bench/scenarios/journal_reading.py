"""What reading a large journal costs: evidence of one call, and verifying beside reading the rows and hashing them."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median

from fumehood_evidence.merkle import leaf_hash
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.evidence import make_bundle
from fumehood_server.journal.keys import load_or_make_key, public_keys
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.verify import verify
from fumehood_server.model.events import About, Digested, ExecuteEnd, ExecuteStart

from bench.harness.report import Report, Row, Target
from bench.harness.rounds import QUICK, Effort

EVENTS, QUICK_EVENTS = 1_000_000, 20_000
VERIFIED_EVENTS = 200_000
"""Of a journal of its own: the ratio is the same, and three turns of a million would take minutes."""
_BATCH = 4_096
_TURNS = 5
_STARTED_US = 1_700_000_000_000_000


def measure_reading(effort: Effort, folder: Path) -> Report:
    """Measure on journals that it writes."""
    events, verified = (QUICK_EVENTS, QUICK_EVENTS) if effort is QUICK else (EVENTS, VERIFIED_EVENTS)
    large = _written(folder / "large", events)
    signer = load_or_make_key(large)
    times = []
    for turn in range(_TURNS):
        start = time.perf_counter()
        with contextlib.closing(SqliteReader(large / JOURNAL_NAME)) as reader:
            make_bundle(reader, signer, call_id=f"call-{turn * events // 2 // _TURNS}")
        times.append((time.perf_counter() - start) * 1e3)
    small = _written(folder / "small", verified)
    ratios = []
    for _ in range(3):
        bare = _bare(small / JOURNAL_NAME)
        start = time.perf_counter()
        with contextlib.closing(SqliteReader(small / JOURNAL_NAME)) as reader:
            found = verify(reader, public_keys(small))
        if found.fault is not None:
            raise AssertionError(found.fault)
        ratios.append((time.perf_counter() - start) / bare)
    evidence, ratio = median(times), median(ratios)
    return Report(
        rows=[
            Row("journal, reading", f"evidence of a call of {events:,} events", {"ms": evidence}),
            Row("journal, reading", f"verifying {verified:,} events", {"/ reading and hashing": ratio}),
        ],
        targets=[
            Target("evidence of one call of a million events, ms", evidence, 100),
            Target("verifying / reading and hashing the rows", ratio, 3),
        ],
    )


def _bare(path: Path) -> float:
    """Seconds to read every row of events, payloads and calls, and to hash what is hashed."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        start = time.perf_counter()
        for row in connection.execute("SELECT position, time_us, type, subject, tool, plugin, body FROM events"):
            leaf_hash(row[6])
        for row in connection.execute("SELECT position, part, data FROM payloads"):
            hashlib.sha256(row[2]).hexdigest()
        for _ in connection.execute("SELECT * FROM calls"):
            pass
        return time.perf_counter() - start


def _written(folder: Path, events: int) -> Path:
    folder.mkdir()
    entries = _entries(events // 2)
    store = SqliteStore(folder / JOURNAL_NAME)
    with contextlib.closing(store):
        while batch := [*islice(entries, _BATCH)]:
            store.write(batch)
        Checkpointer(load_or_make_key(folder))(store)
    return folder


def _entries(calls: int) -> Iterator[Entry]:
    """Calls without effects, as most are: a start and an end each."""
    for number in range(calls):
        about = About(
            call_id=f"call-{number}",
            run_id=f"run-{number // 20}",
            tool="read_file",
            plugin="files",
            context={"request_id": f"run-{number // 20}"},
        )
        arguments, result = b'{"path":"notes/%d.txt"}' % number, b'[{"text":"%d"}]' % number
        digested = Digested.of(arguments)
        start = ExecuteStart(
            side_effects="read",
            arguments_hash=digested.sha256,
            arguments=digested,
            plugin="a" * 64,
            definition="b" * 64,
            caller="unix:",
        )
        end = ExecuteEnd(error=None, outcome_unknown=False, result=Digested.of(result), attempts=1, worker_id="files-1")
        for at, (event, payload) in enumerate(((start, arguments), (end, result)), 1):
            time_us = _STARTED_US + 2 * number + at
            yield encode(event, about, time_us=time_us, sidecar="0a0b0c0d", number=at, payloads=(payload,))
