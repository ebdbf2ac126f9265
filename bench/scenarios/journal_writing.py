"""What writing the journal costs: an intent beside fdatasync(2), rows beside a bare executemany, a peer that signs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import uvloop
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.sqlite.database import connect, migrate
from fumehood_server.model.events import About, Digested, Document, ExecuteAttempt, ExecuteEnd, ExecuteStart

from bench.harness.processes import ROOT, python
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import QUICK, Effort, ratio

_ARGUMENTS = b'{"text":"' + b"x" * 256 + b'"}'
_RESULT = b'{"content":[{"text":"' + b"x" * 256 + b'"}],"details_json":"","terminate":false,"error":null}'
_RECEIPT = Document(b"r" * 32, b"{}")
_BATCH_CALLS = 250
_TURNS = 5
_PEER_S = 120.0


async def measure_writing(effort: Effort, folder: Path) -> Report:
    """Measure on files of `folder`, turn by turn."""
    intents, batches, decisions = (50, 4, 50) if effort is QUICK else (400, 40, 500)
    syncs, commits = [], []
    for turn in range(_TURNS):
        syncs.append(_fdatasync_ms(folder / "file", intents))
        # On the loop that the sidecar has: asyncio's own takes longer to be woken.
        commits.append(await asyncio.to_thread(uvloop.run, _intent_ms(folder / f"intents-{turn}.db", intents)))
    rates: dict[str, list[float]] = {"recorded": [], "bare": []}
    for turn in range(_TURNS):
        entries = [list(_calls(_BATCH_CALLS, first=batch * _BATCH_CALLS)) for batch in range(batches)]
        rates["bare"].append(_events_per_s(_bare(folder / f"bare-{turn}.db"), entries))
        rates["recorded"].append(_events_per_s(_recorded(folder / f"recorded-{turn}.db"), entries))
    sync, intent = median(syncs), median(commits)
    bare, recorded = (median(rates[name]) for name in ("bare", "recorded"))
    peer = await asyncio.to_thread(_decisions_per_s, folder / "peer", decisions)
    return Report(
        rows=[
            Row("journal, writing", "fdatasync of 4 KiB", {"p50_ms": sync}),
            Row("journal, writing", "an intent on disk", {"p50_ms": intent}),
            Row("journal, writing", "executemany of the same rows", {"events_per_s": bare}),
            Row("journal, writing", "events", {"events_per_s": recorded}),
            Row("journal, writing", "tracekit-ai's dev signer", {"decisions_per_s": peer}),
        ],
        targets=[
            Target("an intent / fdatasync", ratio(commits, syncs), 1.5),
            Target("events / executemany of the same rows", recorded / bare, 0.5, at_least=True),
            Target("events / decisions of tracekit-ai's dev signer", recorded / peer, 20.0, at_least=True),
        ],
    )


def _fdatasync_ms(path: Path, count: int) -> float:
    """Of an appended page, as a write-ahead log makes it."""
    times, page = [], os.urandom(4096)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for _ in range(count):
            start = time.perf_counter()
            os.write(descriptor, page)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
    return median(times) * 1e3


async def _intent_ms(path: Path, count: int) -> float:
    """From the event loop to the disk and back: what a call with effects waits before it is sent to its worker."""
    times = []
    async with StoredJournal(
        lambda: SqliteStore(path),
        lambda: SqliteReader(path),
        sidecar="0a0b0c0d",
        on_state=lambda _: None,
        window_s=0.0,
    ) as journal:
        for number in range(count):
            about = About(call_id=f"call-{number:08}", tool="write_file", plugin="files")
            start = time.perf_counter()
            journal.record(_start(), about, (_ARGUMENTS,))
            await journal.commit(ExecuteAttempt(attempt=1, worker_id="files-1", receipt=""), about, (), (_RECEIPT,))
            times.append(time.perf_counter() - start)
    return median(times) * 1e3


def _start() -> ExecuteStart:
    digested = Digested.of(_ARGUMENTS)
    return ExecuteStart(
        side_effects="write",
        arguments_hash=digested.sha256,
        arguments=digested,
        plugin="p" * 64,
        definition="d" * 64,
        caller="",
    )


def _calls(count: int, *, first: int) -> list[Entry]:
    entries = []
    for number in range(first, first + count):
        about = About(call_id=f"call-{number:08}", run_id=f"run-{number // 10}", tool="write_file", plugin="files")
        end = ExecuteEnd(
            error=None, outcome_unknown=False, result=Digested.of(_RESULT), attempts=1, worker_id="files-1"
        )
        time_us = 1_700_000_000_000_000 + number
        entries += [
            encode(_start(), about, time_us=time_us, sidecar="0a0b0c0d", number=1, payloads=(_ARGUMENTS,)),
            encode(end, about, time_us=time_us, sidecar="0a0b0c0d", number=2, payloads=(_RESULT,)),
        ]
    return entries


_Write = Callable[[Sequence[Entry]], object]


def _recorded(path: Path) -> tuple[_Write, Callable[[], None]]:
    store = SqliteStore(path)
    return store.write, store.close


def _bare(path: Path) -> tuple[_Write, Callable[[], None]]:
    """The same tables and commits, by nothing but `executemany`."""
    connection = connect(path)
    migrate(connection, path)
    size = 0

    def write(entries: Sequence[Entry]) -> None:
        nonlocal size
        events = [
            (size + at, each.time_us, each.type, each.subject, each.tool, each.plugin, each.body)
            for at, each in enumerate(entries)
        ]
        payloads = [
            (size + at, part, data) for at, each in enumerate(entries) for part, data in enumerate(each.payloads)
        ]
        calls = [
            (each.subject, "", "", each.tool, b"x" * 32, 1, each.time_us, 3, size + at, size + at + 1)
            for at, each in enumerate(entries)
            if each.type == ExecuteStart.TYPE
        ]
        connection.execute("BEGIN IMMEDIATE")
        for table, rows in (("events", events), ("calls", calls), ("payloads", payloads)):
            sql = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"  # noqa: S608 - named above
            connection.executemany(sql, rows)
        connection.execute("COMMIT")
        size += len(entries)

    return write, connection.close


def _events_per_s(opened: tuple[_Write, Callable[[], None]], batches: Sequence[Sequence[Entry]]) -> float:
    write, close = opened
    try:
        start = time.perf_counter()
        for batch in batches:
            write(batch)
        return sum(map(len, batches)) / (time.perf_counter() - start)
    finally:
        with contextlib.suppress(sqlite3.Error):
            close()


def _decisions_per_s(folder: Path, count: int) -> float:
    folder.mkdir(mode=0o700)
    environment = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    command = python("bench.clients.tracekit", str(count))
    run = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=_PEER_S)
    rate: float = json.loads(run.stdout)
    return rate
