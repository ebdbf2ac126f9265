"""A recorded run is given again from its record, and its code runs again where it can have no effects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import psutil
import pytest
from fumehood.v1 import journal_service_pb2 as pb_journal
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood.v1.tool_pb2 import CallContext
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence.page import read
from fumehood_evidence.verification import policies_of
from fumehood_evidence.verification import verify as verify_bundle
from fumehood_sdk import Plugin, pytest_plugin
from fumehood_sdk.testing import ReplayFailed, replay
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.replay.record import ReplayableCall, read_run

from tests.cli.command import Done, fumehood
from tests.rpc.support import BOUND_S, reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin
from tests.tool_requests.server import serving

from .outside import CODE

fumehood_replay = pytest_plugin.fumehood_replay
VALUE = "a-secret-value-of-some-length"
CALLS = 17
TOOLS = ("gather", "lies", "note", "stumble")


@dataclass
class Place:
    """A sidecar's folder, after its calls."""

    folder: Path
    notes: Path
    hits: list[str]
    settings: dict[str, Any]
    """Of its sidecar, to start it again."""

    @property
    def config(self) -> Path:
        return self.folder / "fumehood.toml"

    def replay(self, *arguments: str) -> Done:
        return fumehood("journal", "replay", *arguments, "--config", self.config)

    @cached_property
    def verified(self) -> Done:
        """All of its calls, which are of one session, run again."""
        return self.replay("everything", "--verify", "--json")

    def verdicts(self, *call_ids: str) -> dict[str, str]:
        return {call_id: self.verdict(call_id)["verdict"] for call_id in call_ids}

    def verdict(self, call_id: str) -> dict[str, Any]:
        """What came of one call."""
        found = {each["call_id"]: each for each in map(json.loads, self.verified.stdout.splitlines())}
        assert len(found) == CALLS, self.verified.stderr
        return found[call_id]

    def recorded(self, run: str) -> list[ReplayableCall]:
        return [*read_run(SqliteReader(next(self.folder.rglob(JOURNAL_NAME))), run)]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        notes = folder / "notes"
        notes.mkdir()
        notes.chmod(0o777)
        (folder / "there").mkdir()
        (folder / "there" / "file").touch()
        (folder / "key").write_text(VALUE)
        (folder / "key").chmod(0o600)
        plugin = write_plugin(folder / "plugin", "outside", CODE)
        hits: list[str] = []
        settings = asyncio.run(_record(folder, plugin, notes, hits))
        yield Place(folder, notes, hits, settings)


async def _record(folder: Path, plugin: Path, notes: Path, hits: list[str]) -> dict[str, Any]:
    with serving() as web:
        port = web.port
        allowed = "".join(f'[plugin.tools.{tool}]\npermission = "allow"\n' for tool in TOOLS)
        grants = (
            f'max_side_effects = "external"\nread = ["{folder / "there"}"]\nwrite = ["{notes}"]\n'
            f'hosts = ["127.0.0.1:{port}"]\n'
            f'{allowed}[plugin.tools.signs]\nsecrets = ["KEY"]\n'
        )
        more = f'[egress]\nallow_private = ["127.0.0.1"]\n[secrets.KEY]\nfile = "{folder / "key"}"\n'
        settings = {"plugins": [(plugin, grants)], "more": more, "at": folder}
        with running_sidecar(**settings) as sidecar:
            async with sidecar.channel() as channel:
                stub = ToolServiceStub(channel)

                async def call(run: str, call_id: str, tool: str, **arguments: object) -> None:
                    session = "" if run == "lingering" else "everything"
                    context = CallContext(request_id=run, session_id=session)
                    text = json.dumps(arguments)
                    await stub.CallTool(
                        pb.CallToolRequest(tool=tool, arguments_json=text, call_id=call_id, context=context)
                    )

                await asyncio.gather(*(call("eight", f"g{part}", "gather", port=port, part=part) for part in range(8)))
                for run, tool, arguments in (
                    ("mixed", "clock", {}),
                    ("mixed", "told", {}),
                    ("mixed", "greedy", {}),
                    ("effects", "note", {"folder": str(notes), "recorded": "true"}),  # which is mended
                    ("errors", "stumble", {"port": port}),
                    ("errors", "gives_up", {}),
                    ("secrets", "signs", {}),
                    ("lying", "lies", {"port": port}),
                    ("lingering", "lingers", {"path": str(folder / "there" / "file")}),
                ):
                    await call(run, tool, tool, **arguments)
                await call("effects", "bare", "note", folder=str(notes), recorded=False)
        hits += [path for _, path, _, _ in web.requests]
    return settings


@pytest.fixture(scope="module")
def serves(place: Place) -> Iterator[Sidecar]:
    """A sidecar that goes on with that journal."""
    with running_sidecar(**place.settings) as sidecar:
        yield sidecar


@pytest.fixture
async def journal(serves: Sidecar) -> AsyncIterator[Any]:
    async with serves.channel() as channel:
        yield JournalServiceStub(channel)


async def replayed(journal: Any, run: str, *, verify: bool = False) -> tuple[list[Any], Any]:
    """The calls of a replay, and its summary."""
    async with asyncio.timeout(BOUND_S):
        messages = [each async for each in journal.ReplayRun(pb_journal.ReplayRunRequest(run=run, verify=verify))]
    assert [each.HasField("summary") for each in messages] == [False] * (len(messages) - 1) + [True]
    return [call for each in messages for call in each.calls], messages[-1].summary


def test_eight_calls_that_interleave_their_requests_verify(place: Place) -> None:
    before = len(place.hits)
    assert before >= 32
    calls = place.recorded("eight")
    assert {len(each.values.values) for each in calls if each.values} == {7}
    assert len({each.result for each in calls}) == 8
    assert set(place.verdicts(*(f"g{part}" for part in range(8))).values()) == {"verified"}
    assert len(place.hits) == before


def test_a_tool_that_reads_the_real_clock_diverges_and_is_named(place: Place) -> None:
    assert place.verdicts("clock", "told", "greedy") == {"clock": "diverged", "told": "verified", "greedy": "not_run"}
    clock = place.verdict("clock")
    assert (clock["tool"], clock["divergence"]["kind"]) == ("clock", "payload")
    assert "--- recorded" in clock["divergence"]["diff"]
    assert "2000 of its values" in place.verdict("greedy")["why"]
    assert (place.verified.status, place.verified.error["code"]) == (1, "REPLAY_DIVERGED")


def test_a_replay_has_no_effects(place: Place) -> None:
    note = place.notes / "note"
    assert note.read_text() == "a line\n" * 2
    assert place.verdicts("note", "bare") == {"note": "verified", "bare": "diverged"}
    diff = place.verdict("bare")["divergence"]["diff"]
    assert "written" in diff
    assert "FileNotFoundError" in diff or "PermissionError" in diff or "OSError" in diff
    assert note.read_text() == "a line\n" * 2


def test_errors_are_recorded_and_come_again(place: Place) -> None:
    (stumbled, gave_up) = place.recorded("errors")
    assert stumbled.outcome is not None
    assert json.loads(stumbled.outcome.details_json) == [
        ["odd", "a", 2],
        ["FileNotFoundError", 2],
        404,
        ["HttpRefused", "host_not_granted"],
    ]
    assert gave_up.outcome is not None
    assert gave_up.outcome.error is not None
    assert "no luck" in gave_up.outcome.error.message
    assert set(place.verdicts("stumble", "gives_up").values()) == {"verified"}
    shown = place.replay("errors", "--verify")
    assert (shown.status, shown.stdout.count("verified")) == (0, 2)


def test_a_secret_is_recorded_by_name_alone_and_verifies(place: Place) -> None:
    (call,) = place.recorded("secrets")
    assert call.values is not None
    assert [(each.kind, each.name, each.value_json) for each in call.values.values] == [("secret", "KEY", "")]
    assert place.verdict("signs")["verdict"] == "verified"


def test_without_verify_outcomes_come_from_the_record_alone(place: Place) -> None:
    done = place.replay("errors", "--json")
    stumbled, gave_up = map(json.loads, done.stdout.splitlines())
    assert (done.status, stumbled["call_id"], gave_up["call_id"]) == (0, "stumble", "gives_up")
    assert gave_up["outcome"]["error"]["code"] == "TOOL_EXECUTION_FAILED"
    assert place.replay("clock").stdout.count("clock") == 2
    assert place.replay("nothing").status == 2


def test_code_that_has_changed_is_not_run(place: Place, tmp_path: Path) -> None:
    changed = tmp_path / "fumehood.toml"
    plugin = write_plugin(tmp_path / "plugin", "outside", CODE + "\n# more\n")
    folder = next(place.folder.rglob(JOURNAL_NAME)).parent
    changed.write_text(f'[server]\nstate_dir = "{folder}"\n[[plugin]]\npath = "{plugin}"\n')
    done = fumehood("journal", "replay", "clock", "--verify", "--json", "--config", changed)
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (done.status, found["verdict"]) == (1, "not_run")
    assert "has changed" in found["why"]


def outside() -> Plugin:
    """The plugin in this process."""
    names: dict[str, Any] = {"__name__": "outside"}
    exec(CODE, names)  # noqa: S102 - the code of this file
    sys.modules["outside"] = SimpleNamespace(**names)  # type: ignore[assignment]
    plugin: Plugin = names["plugin"]
    return plugin


def test_a_recorded_run_is_a_test_of_its_plugin(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    for run, count in (("eight", 8), ("errors", 2)):
        assert place.replay(run, "-o", str(file)).status == 0
        assert len(replay(file, outside())) == count
    assert place.replay("mixed", "-o", str(file)).status == 0
    with pytest.raises(ReplayFailed) as failed:
        replay(file, outside())
    first, *diff = str(failed.value).splitlines()
    assert first == "clock clock: payload: its result is another one"
    assert diff[0] == "--- recorded"
    assert "told" not in str(failed.value)
    file.write_text("{}\n")
    with pytest.raises(ValueError, match="no file of recorded calls"):
        replay(file, outside())


def test_the_fixture_runs_recorded_calls(
    place: Place, tmp_path: Path, fumehood_replay: Callable[..., tuple[str, ...]]
) -> None:
    file = tmp_path / "run.jsonl"
    assert place.replay("secrets", "-o", str(file)).status == 0
    assert fumehood_replay(file, outside()) == ("signs",)


async def test_eight_calls_that_interleave_their_requests_verify_over_grpc(place: Place, journal: Any) -> None:
    before = len(place.hits)
    calls, summary = await replayed(journal, "eight", verify=True)
    assert {each.call_id for each in calls} == {f"g{part}" for part in range(8)}
    assert {each.verdict for each in calls} == {pb_journal.REPLAY_VERDICT_VERIFIED}
    assert summary == pb_journal.ReplaySummary(calls=8, verified=8)
    assert len(place.hits) == before


async def test_http_responses_that_the_sidecar_did_not_give_are_counted_in_the_record(journal: Any) -> None:
    found = {}
    for run in ("eight", "errors", "lying"):
        wanted = pb_journal.EventFilter(request_id=run, types=["execute_values"])
        page = await journal.ListEvents(pb_journal.ListEventsRequest(filter=wanted))
        found[run] = [json.loads(each.body_json)["data"]["unconfirmed"] for each in page.events]
    assert found == {"eight": [0] * 8, "errors": [0, 0], "lying": [1]}


async def test_a_divergence_is_named_over_grpc(journal: Any) -> None:
    calls, summary = await replayed(journal, "mixed", verify=True)
    clock, told, greedy = calls
    assert (clock.call_id, clock.divergence.kind) == ("clock", pb_journal.DIVERGENCE_KIND_PAYLOAD)
    assert "--- recorded" in clock.divergence.diff
    assert told.verdict == pb_journal.REPLAY_VERDICT_VERIFIED
    assert "2000 of its values" in greedy.not_run_because
    assert summary == pb_journal.ReplaySummary(calls=3, verified=1, diverged=1, not_run=1)


async def test_recorded_outcomes_come_over_grpc_and_nothing_runs(place: Place, journal: Any) -> None:
    lines = place.notes.joinpath("note").read_text()
    (note, bare), summary = await replayed(journal, "effects")
    assert (note.call_id, note.state, note.result.content[0].text) == ("note", pb.CALL_STATE_ENDED, "written")
    assert (bare.call_id, note.result.sandbox.backend != "") == ("bare", True)
    assert summary == pb_journal.ReplaySummary(calls=2)
    (one,), _ = await replayed(journal, "gives_up")
    assert (one.result.is_error, one.result.error.code) == (True, "TOOL_EXECUTION_FAILED")
    assert len((await replayed(journal, "everything"))[0]) == CALLS
    assert place.notes.joinpath("note").read_text() == lines
    for request, reason in (("nothing", "RUN_NOT_FOUND"), ("", "REQUEST_INVALID"), ("x" * 300, "REQUEST_INVALID")):
        for verify in (False, True):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await replayed(journal, request, verify=verify)
            assert reason_of(caught.value) == reason


async def test_a_caller_that_leaves_ends_the_processes_of_its_replay(serves: Sidecar, journal: Any) -> None:
    stream = journal.ReplayRun(pb_journal.ReplayRunRequest(run="lingering", verify=True))
    reading = asyncio.ensure_future(stream.read())
    processes = await under_way(serves)
    with pytest.raises(grpc.aio.AioRpcError) as caught:  # that place is taken, and calls have theirs
        await replayed(journal, "effects", verify=True)
    assert reason_of(caught.value) == "TOO_MANY_STREAMS"
    assert len((await replayed(journal, "effects"))[0]) == 2
    async with serves.channel() as channel:
        result = await ToolServiceStub(channel).CallTool(pb.CallToolRequest(tool="told", arguments_json="{}"))
    assert not result.result.is_error
    stream.cancel()
    await asyncio.wait((reading,))
    gone, alive = await asyncio.to_thread(psutil.wait_procs, processes, BOUND_S)
    assert (len(gone), alive) == (len(processes), [])
    async with asyncio.timeout(BOUND_S):  # its place is free a moment after its processes are gone
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert (await replayed(journal, "effects", verify=True))[1].calls == 2
                break
            await asyncio.sleep(0.02)


def test_evidence_says_what_recorded_values_do_not_prove(place: Place, tmp_path: Path) -> None:
    said = {}
    for run in ("eight", "lying"):
        file = tmp_path / run
        done = fumehood("journal", "evidence", "--run", run, "-o", str(file), "--config", place.config)
        assert done.status == 0, done.stderr
        page = file.read_text()
        assert "<code>unconfirmed</code>" in page
        said[run] = verify_bundle(read(page), public_keys(place.folder / ".fumehood")).not_proven
    assert [any("1 HTTP responses" in each for each in lines) for lines in said.values()] == [False, True]
    assert all(any("took from outside" in each for each in lines) for lines in said.values())


def test_evidence_holds_the_policy_that_each_receipt_carries_out(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert fumehood("journal", "evidence", "--run", "eight", "-o", str(file), "--config", place.config).status == 0
    bundle = read(file.read_text())
    policies = policies_of(bundle.documents.values())
    assert policies
    for digest in policies:
        policy = json.loads(bundle.documents[digest])
        assert policy["level"] == "external"
        assert policy["limits"]["memory_bytes"] > 0
        assert policy["runtime"]
        assert all(re.fullmatch("[0-9a-f]{64}", value) for _, value in policy["environment"])
    keys = public_keys(place.folder / ".fumehood")
    assert not any("policy" in each for each in verify_bundle(bundle, keys).not_proven)


def test_recorded_values_stay_in_a_journal_that_verifies(place: Place) -> None:
    assert fumehood("journal", "verify", "--config", place.config).status == 0


async def test_a_sidecar_that_is_killed_leaves_no_process_of_a_replay(serves: Sidecar, journal: Any) -> None:
    """The last test: nobody serves any more."""
    stream = journal.ReplayRun(pb_journal.ReplayRunRequest(run="lingering", verify=True))
    reading = asyncio.ensure_future(stream.read())
    processes = await under_way(serves)
    serves.signal(signal.SIGKILL)
    gone, alive = await asyncio.to_thread(psutil.wait_procs, processes, BOUND_S)
    assert (len(gone), alive) == (len(processes), [])
    with pytest.raises(grpc.aio.AioRpcError):
        await reading


async def under_way(sidecar: Sidecar) -> list[psutil.Process]:
    """The process of a replay and what it has started, once that has started something."""
    async with asyncio.timeout(BOUND_S):
        while True:
            for child in psutil.Process(sidecar.process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "fumehood_server.replay.process" in " ".join(child.cmdline()):
                        started = child.children(recursive=True)
                        if len(started) > 1:
                            return [child, *started]
            await asyncio.sleep(0.01)
