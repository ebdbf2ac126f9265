"""Checkpoints are taken to where the operator said: a file, a command, a witness. What fails is tried again."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence.merkle import consistency_proof
from fumehood_evidence.note import Signer, Verifier, opened
from fumehood_server.config import load_config
from fumehood_server.errors import ConfigError
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.handover.command import CommandPlace
from fumehood_server.journal.handover.file import FilePlace
from fumehood_server.journal.handover.handover import Handover
from fumehood_server.journal.handover.place import PlaceError
from fumehood_server.journal.handover.witness import WitnessPlace
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.store import load_tree

from tests.rpc.support import BOUND_S, call
from tests.sidecar import running_sidecar, write_plugin

from .bench import entries, written
from .witness import TIME, Witness, witness

LOG = Signer.generate("test/journal")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Log:
    """A journal that grows, and the checkpoint over it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.db"
        self._events = list(entries(100))
        written(self.path, [self._events[:50]], LOG)

    def grow(self) -> None:
        written(self.path, [self._events[50:]], LOG)

    def note(self) -> str:
        with contextlib.closing(SqliteReader(self.path)) as reader:
            return [text for _, text in reader.checkpoints()][-1]

    def prove(self, old: int, new: int) -> list[bytes]:
        tree = load_tree(SqliteReader(self.path))
        with contextlib.closing(SqliteReader(self.path)) as reader:
            return consistency_proof(old, new, tree.reader(reader.tile))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def place(one: Witness, log: Log) -> WitnessPlace:
    one.log = LOG.verifier
    return WitnessPlace(one.url, one.signer.verifier, LOG.verifier, log.prove)


def test_a_file_is_appended_to_and_holds_whole_notes(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "checkpoints"
    first = log.note()
    FilePlace(path).take(first)
    log.grow()
    FilePlace(path).take(log.note())
    assert path.read_text() == first + log.note()
    with pytest.raises(PlaceError, match="Is a directory"):
        FilePlace(tmp_path).take(first)


def test_a_command_gets_the_note_and_nothing_of_the_environment(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    code = "import os, sys, json; json.dump([sys.stdin.read(), 'SECRET' in os.environ, os.getcwd()], open('got', 'w'))"
    CommandPlace([sys.executable, "-c", code], tmp_path).take(log.note())
    assert json.loads((tmp_path / "got").read_text()) == [log.note(), False, str(tmp_path)]


@pytest.mark.parametrize(
    ("command", "timeout_s", "problem"),
    [
        (["/no/such/program"], BOUND_S, "can't be run: No such file"),
        ([sys.executable, "-c", "import sys; sys.exit('the disk is away')"], BOUND_S, "status 1: the disk is away"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], 1.0, "longer than 1 s"),
    ],
)
def test_a_command_that_fails_is_told_and_leaves_nothing(
    tmp_path: Path, log: Log, command: list[str], timeout_s: float, problem: str
) -> None:
    before = _children()
    with pytest.raises(PlaceError, match=problem):
        CommandPlace(command, tmp_path, timeout_s=timeout_s).take(log.note())
    assert _children() == before


def _children() -> set[str]:
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return set(path.read_text().split())


def test_a_witness_cosigns_what_only_grows(log: Log) -> None:
    with witness() as one:
        to = place(one, log)
        first = to.take(log.note())
        log.grow()
        second = to.take(log.note())
    assert one.sizes == [50, 301]
    for note in (first, second):
        signatures = opened(note, [LOG.verifier, one.signer.verifier]).signatures
        assert [(each.name, each.time) for each in signatures] == [("test/journal", None), ("test/witness", TIME)]


def test_a_witness_that_knows_the_log_already_is_shown_the_proof_from_there(log: Log) -> None:
    with witness() as one:
        place(one, log).take(log.note())
        log.grow()
        place(one, log).take(log.note())  # as after a restart
    assert one.sizes == [50, 301]


def test_a_log_that_was_begun_anew_gets_no_cosignature(tmp_path: Path, log: Log) -> None:
    log.grow()
    (tmp_path / "other").mkdir()
    other = Log(tmp_path / "other")
    with witness() as one:
        place(one, log).take(log.note())
        with pytest.raises(PlaceError, match="another log of this name: it knows a size of 301"):
            place(one, other).take(other.note())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, "out of order"), "it answered 500: out of order"),
        ((302, ""), "it answered 302"),
        ((200, ""), "without a cosignature"),
        ((200, Signer.generate("other").sign("x\n")), "without a cosignature"),
        ((200, "\u2014 test/witness AAAA\n"), "does not hold"),
        ((200, "x" * 100_000), "does not hold"),
        ((409, "9" * 5000), "another log"),
    ],
)
def test_an_answer_that_is_no_cosignature_is_refused(log: Log, answer: tuple[int, str], problem: str) -> None:
    with witness() as one:
        to = place(one, log)
        one.answers = [answer]
        with pytest.raises(PlaceError, match=problem):
            to.take(log.note())
        assert to.take(log.note()), "control: asked again it cosigns"


def test_a_witness_that_is_away_is_told_as_that(log: Log) -> None:
    with witness() as one:
        to = place(one, log)
    with pytest.raises(PlaceError, match=r"can't be reached: .*refused"):
        to.take(log.note())


def test_what_was_not_taken_is_tried_again_by_whom_it_is_missing(tmp_path: Path, log: Log) -> None:
    states: list[tuple[str, str | None]] = []
    late = tmp_path / "later" / "file"
    here = tmp_path / "file"
    handover = Handover(
        [FilePlace(here), FilePlace(late)], lambda *state: states.append(state), every_s=0.01, retry_s=0.05
    )
    handover(log.note())
    until(lambda: states)
    late.parent.mkdir()
    until(late.exists)
    handover.close()
    assert late.read_text() == here.read_text() == log.note()
    assert states == [(f"the file {late}", "No such file or directory"), (f"the file {late}", None)]


def test_a_busy_place_gets_the_newest_and_the_last(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "file"
    handover = Handover([FilePlace(path)], lambda *_: None, every_s=60.0)
    first = log.note()
    handover(first)
    until(path.exists)
    handover("between\n\n")
    log.grow()
    handover(log.note())
    handover.close()
    assert path.read_text() == first + log.note()


def test_a_cosignature_is_kept_in_the_journal(log: Log) -> None:
    with witness() as one:
        handover = Handover([place(one, log)], lambda *_: None, every_s=0.01)
        store = SqliteStore(log.path)
        try:
            checkpointer = Checkpointer(LOG, handover)
            checkpointer(store)
            until(lambda: one.sizes)
            handover.close()
            checkpointer(store)
        finally:
            store.close()
    with contextlib.closing(SqliteReader(log.path)) as reader:
        notes = [text for _, text in reader.checkpoints()]
    names = [each.name for each in opened(notes[-1], [LOG.verifier, one.signer.verifier]).signatures]
    assert names == ["test/journal", "test/witness"]


_CODE = """
from fumehood_sdk import Plugin

plugin = Plugin("small", version="1.0.0")


@plugin.tool(side_effects="none")
def hello() -> str:
    \"\"\"Say hello.\"\"\"
    return "hello"
"""


def test_a_sidecar_hands_over_its_last_checkpoint_when_it_ends(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "plugin", "small", _CODE)
    kept = tmp_path / "kept"
    with witness() as one:
        more = (
            f'[journal.checkpoints]\nfile = "{kept}"\ncommand = ["/bin/sh", "-c", "cat >> {tmp_path}/by-command"]\n'
            f'witness = "{one.url}"\nwitness_key = "{one.signer.verifier}"\n'
        )
        with running_sidecar([plugin], more=more) as sidecar:
            one.log = Verifier.parse((sidecar.folder / ".fumehood" / "journal.pub").read_text())
            with grpc.insecure_channel(sidecar.target) as channel:
                assert not ToolServiceStub(channel).CallTool(call("hello"), timeout=BOUND_S).result.is_error
            sidecar.signal()
            assert sidecar.wait() == 0
            with contextlib.closing(SqliteReader(sidecar.folder / ".fumehood" / "journal.db")) as reader:
                events = reader.counts().events
    assert (tmp_path / "by-command").read_text() == kept.read_text()
    assert one.sizes[-1] == events
    assert f"\n{events}\n" in kept.read_text()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('witness = "http://127.0.0.1:1"', "there is no `witness_key`"),
        ('witness_key = "x"', "there is no `witness`"),
        ('witness = "http://h"\nwitness_key = "x"', "a public key is written"),
        (f'witness = "http://h"\nwitness_key = "{LOG.verifier}"', "makes no cosignatures"),
        ('witness = "ftp://h"\nwitness_key = "x"', "witness"),
        ('command = [""]', "its first part is empty"),
        ('place = "x"', "place"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_by_its_key(tmp_path: Path, lines: str, problem: str) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(f"[journal.checkpoints]\n{lines}\n")
    with pytest.raises(ConfigError, match=problem):
        load_config(path)


def test_no_plugin_may_write_where_checkpoints_are_kept(tmp_path: Path) -> None:
    for name in ("kept", "other"):
        (tmp_path / name).mkdir()
    plugin = write_plugin(tmp_path / "plugin", "small", _CODE)
    path = tmp_path / "fumehood.toml"
    grant = f'[[plugin]]\npath = "{plugin}"\nmax_side_effects = "write"\nwrite = ["{tmp_path}/%s"]\n'
    path.write_text('[journal.checkpoints]\nfile = "kept/file"\n' + grant % "kept")
    with pytest.raises(ConfigError, match="the folder of the journal's checkpoints"):
        load_config(path)
    path.write_text('[journal.checkpoints]\nfile = "kept/file"\n' + grant % "other")
    assert load_config(path).journal.checkpoints.file == tmp_path / "kept/file"
