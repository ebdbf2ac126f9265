"""What the journal took is on disk when it says so, and at the latest when it closes, whatever the database does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_evidence import merkle, note
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.note import Signer, Verifier
from fumehood_server.errors import JournalUnavailableError
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.entry import CallState
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.sqlite import MIGRATIONS, SqliteReader, SqliteStore
from fumehood_server.journal.store import EventFilter, NewerJournalError, Store, load_tree
from fumehood_server.journal.verify import verify
from fumehood_server.journal.writer import Upkeep, WriterSettings
from fumehood_server.model.events import About, EventsLost, SidecarStarted

from . import writes
from .bench import ATTEMPT, about, end, start

BOUND_S = 60
STARTED = SidecarStarted(version="0.1.0")


class Kept:
    """A journal and what it said of itself."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.db"
        self.states: list[str | None] = []
        self.signer = Signer.generate("test/journal")

    def open(
        self,
        settings: WriterSettings | None = None,
        *,
        commit_s: float = BOUND_S,
        window_s: float = 3600.0,
        upkeep: Upkeep | None = None,
    ) -> StoredJournal:
        return StoredJournal(
            lambda: SqliteStore(self.path),
            lambda: SqliteReader(self.path),
            sidecar="0a0b0c0d",
            on_state=self.states.append,
            window_s=window_s,
            upkeep=upkeep or Checkpointer(self.signer),
            settings=settings,
            commit_s=commit_s,
        )

    def types(self) -> list[str]:
        with contextlib.closing(SqliteReader(self.path)) as reader:
            assert verify(reader, [self.signer.verifier]).fault is None
            return [event.type for event in reader.events(EventFilter(), limit=10_000)]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["/bin/umount", str(folder)], check=True)


async def until(condition: object) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 - nothing tells what another thread has done
            await asyncio.sleep(0.01)


async def test_what_is_committed_is_on_disk_with_all_that_came_before(kept: Kept) -> None:
    async with kept.open() as journal:
        journal.record(start(), about("a"), (b"{}",))
        await journal.commit(ATTEMPT, about("a"))
        with contextlib.closing(SqliteReader(kept.path)) as reader:
            assert [event.type for event in reader.events(EventFilter(), limit=9)] == [
                "execute_start",
                "execute_attempt",
            ]
            assert reader.calls(["a"])["a"].state is CallState.DISPATCHED


async def test_what_nobody_waits_for_is_on_disk_soon(kept: Kept) -> None:
    async with kept.open() as journal:
        await journal.commit(STARTED)
        journal.record(start(), about("a"), (b"{}",))
        with contextlib.closing(SqliteReader(kept.path)) as reader:
            await until(lambda: reader.counts().events == 2)


async def test_nobody_else_may_read_it(kept: Kept) -> None:
    async with kept.open() as journal:
        await journal.commit(STARTED)
        files = [each for each in kept.path.parent.iterdir() if each.name.startswith("journal.db")]
        assert len(files) == 4
        assert {each.stat().st_mode & 0o777 for each in files} == {0o600}


async def test_closing_writes_what_is_left_and_signs_it(kept: Kept) -> None:
    async with kept.open() as journal:
        for number in range(700):
            journal.record(start(), about(f"call-{number}"), (b"{}",))
            journal.record(end(), about(f"call-{number}"), (b"[]",))
    assert len(kept.types()) == 1400
    with contextlib.closing(SqliteReader(kept.path)) as reader:
        assert Checkpoint.parse(note.opened(reader.checkpoint(0) or "", [kept.signer.verifier]).text).size == 1400
        assert reader.counts().ended == 700


async def test_a_full_disk_refuses_what_waits_and_loses_nothing(kept: Kept, small_disk: Path) -> None:
    kept.path = small_disk / "journal.db"
    async with kept.open() as journal:
        await journal.commit(STARTED)
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(b"x" * 1_048_576)
        for number in range(100):
            arguments = b"{" + b" " * 1000 + b"}"
            journal.record(start(arguments), about(f"call-{number}"), (arguments,))
        journal._commit_s = 1
        with pytest.raises(JournalUnavailableError, match="full"):
            await journal.commit(ATTEMPT, about("call-0"))
        journal._commit_s = BOUND_S
        assert journal.problem is not None
        assert "full" in journal.problem
        ballast.unlink()
        await until(lambda: journal.problem is None)
        await journal.commit(end(), about("call-0"), (b"[]",))
    assert [state is None for state in kept.states] == [False, True]
    assert kept.types() == ["sidecar_started", *["execute_start"] * 100, "execute_attempt", "execute_end"]


async def test_text_that_is_not_whole_is_recorded_all_the_same(kept: Kept) -> None:
    """As from a file whose name is no text."""
    async with kept.open() as journal:
        journal.record(SidecarStarted(version="1\udcff2"))
        await journal.commit(STARTED)
    with contextlib.closing(SqliteReader(kept.path)) as reader:
        assert b'"version":"1?2"' in reader.events(EventFilter(), limit=9)[0].body
    assert kept.types() == ["sidecar_started"] * 2


async def test_a_fault_of_the_writers_own_is_said_and_it_goes_on(kept: Kept) -> None:
    faults = [AttributeError("no such thing")]

    def upkeep(store: Store) -> None:
        if faults:
            raise faults.pop()
        Checkpointer(kept.signer)(store)

    async with kept.open(WriterSettings(upkeep_s=0.01, retry_s=0.05), upkeep=upkeep) as journal:
        await journal.commit(STARTED)
        await until(lambda: len(kept.states) == 2)
        await journal.commit(STARTED)
    assert kept.states == ["its writer failed: AttributeError('no such thing')", None]
    assert kept.types() == ["sidecar_started"] * 2


async def test_a_database_that_is_away_at_the_start_is_tried_again(kept: Kept, tmp_path: Path) -> None:
    kept.path = tmp_path / "later" / "journal.db"
    async with kept.open(commit_s=0.2) as journal:
        assert "unable to open" in str(kept.states[0])
        with pytest.raises(JournalUnavailableError, match="unable to open"):
            await journal.commit(STARTED)
        kept.path.parent.mkdir()
        await until(lambda: kept.states[-1] is None)
    assert kept.types() == ["sidecar_started"]


async def test_calls_that_are_faster_than_the_disk_wait_for_it_and_nothing_is_lost(kept: Kept) -> None:
    async with kept.open(WriterSettings(max_entries=10)) as journal:
        fullest = 0

        async def call(number: int) -> None:
            nonlocal fullest
            for event, payload in ((start(), b"{}"), (end(), b"[]")):
                while not journal.has_room():
                    await journal.room()
                journal.record(event, about(f"call-{number}"), (payload,))
                fullest = max(fullest, journal._writer._waiting)

        async with asyncio.timeout(BOUND_S):
            await asyncio.gather(*map(call, range(200)))
    types = kept.types()
    assert (len(types), set(types)) == (400, {"execute_start", "execute_end"})
    assert fullest == 10


async def test_a_small_event_does_not_wait_for_large_ones(kept: Kept) -> None:
    large = b"x" * 100_000
    async with kept.open(WriterSettings(max_bytes=150_000)) as journal:
        for number in range(2):
            journal.record(start(large), about(f"large-{number}"), (large,))
        assert (journal.has_room(len(large)), journal.has_room(100)) == (False, True)
        journal.record(start(), about("small"), (b"{}",))
        await journal.room(len(large))
        assert journal.has_room(len(large))
    assert kept.types() == ["execute_start"] * 3


async def test_the_end_of_a_call_that_began_is_kept_where_no_other_begins(kept: Kept, tmp_path: Path) -> None:
    kept.path = tmp_path / "later" / "journal.db"
    async with kept.open(WriterSettings(max_entries=10, retry_s=0.05)) as journal:
        await until(lambda: journal.problem is not None)
        await asyncio.wait_for(journal.room(), 1)  # nobody waits for a disk that is gone
        for number in range(20):
            journal.record(start(), about(f"call-{number}"), (b"{}",))
        for number in range(10):
            journal.record(end(), about(f"call-{number}"), (b"[]",))
        kept.path.parent.mkdir()
        await until(lambda: journal.problem is None)
    types = kept.types()
    assert (types.count("execute_start"), types.count("execute_end"), types.count("events_lost")) == (10, 10, 1)


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted(kept: Kept, tmp_path: Path) -> None:
    kept.path = tmp_path / "later" / "journal.db"
    async with kept.open(WriterSettings(max_entries=10, retry_s=0.05), commit_s=0.2) as journal:
        for number in range(25):
            journal.record(start(), about(f"call-{number}"), (b"{}",))
        with pytest.raises(JournalUnavailableError):
            await journal.commit(ATTEMPT, about("call-0"))
        kept.path.parent.mkdir()
        await until(lambda: journal.problem is None and kept.states[-1] is None)
        journal.record(end(), about("call-0"), (b"[]",))
    with contextlib.closing(SqliteReader(kept.path)) as reader:
        events = reader.events(EventFilter(), limit=100)
    assert [event.type for event in events] == ["execute_start"] * 10 + [EventsLost.TYPE, "execute_end"]
    assert b'"count":15' in events[10].body


async def test_a_newer_journal_is_refused(kept: Kept) -> None:
    SqliteStore(kept.path).close()
    with contextlib.closing(sqlite3.connect(kept.path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(NewerJournalError, match="run the newer sidecar"):
        async with kept.open():
            pass


async def test_a_second_sidecar_is_refused_the_same_file(kept: Kept) -> None:
    async with kept.open() as journal:
        await journal.commit(STARTED)
        other = Kept(kept.path.parent)
        async with other.open(commit_s=0.2) as second:
            with pytest.raises(JournalUnavailableError, match="another sidecar"):
                await second.commit(STARTED)


@pytest.fixture
async def killed(tmp_path: Path) -> tuple[Path, list[str]]:
    """A journal whose writer was killed while it wrote, and which calls it had said were on disk."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, writes.__file__, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            said = [(await process.stdout.readline()).decode().strip()]
            wanted = random.randrange(5, 400)  # noqa: S311 - any moment will do
            while len(said) < wanted:
                said.append((await process.stdout.readline()).decode().strip())
    finally:
        os.kill(process.pid, signal.SIGKILL)
    rest = (await process.stdout.read()).decode().split("\n")[:-1]
    await process.wait()
    return tmp_path, [*said, *rest]


@pytest.mark.parametrize("_turn", range(3))
async def test_nothing_acknowledged_is_lost_to_a_kill(killed: tuple[Path, list[str]], _turn: int) -> None:
    folder, said = killed
    path = folder / "journal.db"
    key = Verifier.parse((folder / "journal.pub").read_text())
    SqliteStore(path).close()  # the next start
    with contextlib.closing(SqliteReader(path)) as reader:
        assert verify(reader, [key]).fault is None
        assert set(said) <= set(reader.calls(said))
        assert all(reader.calls([call])[call].end_position for call in said)
    tree = load_tree(SqliteReader(path))
    with contextlib.closing(SqliteReader(path)) as reader:
        subtree = tree.reader(reader.tile)
        for text in (folder / "handed").read_text().split("\f")[:-1]:
            handed = Checkpoint.parse(note.opened(text, [key]).text)
            proof = merkle.consistency_proof(handed.size, tree.size, subtree)
            merkle.verify_consistency(handed.size, handed.root, tree.size, tree.root(), proof)


async def test_time_does_not_run_backwards_in_the_journal(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kept.open() as journal:
        journal.record(STARTED, About())
        monkeypatch.setattr("time.time_ns", lambda: 1_000)
        journal.record(start(), about("a"), (b"{}",))
    with contextlib.closing(SqliteReader(kept.path)) as reader:
        times = [event.time_us for event in reader.events(EventFilter(), limit=9)]
    assert times == sorted(times)
