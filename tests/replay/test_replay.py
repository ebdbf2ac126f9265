"""A recorded run is given again from its record, and its code runs again where it can have no effects."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_pb2 import CallContext
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_sdk import Plugin, pytest_plugin
from fumehood_sdk.testing import ReplayFailed, replay
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.replay.record import ReplayableCall, read_run

from tests.cli.command import Done, fumehood
from tests.sidecar import running_sidecar, write_plugin
from tests.tool_requests.server import serving

CODE = """
import asyncio, os, pathlib, time
from fumehood_sdk import Context, Plugin, ToolError

plugin = Plugin("outside", version="1.0.0")


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


@plugin.tool(side_effects="external")
async def gather(port: int, part: int, ctx: Context) -> dict:
    \"\"\"Takes much from outside, tasks side by side.\"\"\"
    async def one(number: int) -> str:
        return (await ctx.http.aget(f"http://127.0.0.1:{port}/{part}/{number}")).text
    begun = ctx.now().isoformat()
    texts = await asyncio.gather(*map(one, range(4)))
    token = await ctx.aside_effect("token", token_of)
    return {"begun": begun, "texts": texts, "token": token, "drawn": ctx.random().randrange(10**9),
            "ended": ctx.now().isoformat()}


async def token_of() -> list:
    return [os.urandom(8).hex(), time.time()]


@plugin.tool(side_effects="none")
def clock() -> float:
    \"\"\"Reads the real clock.\"\"\"
    return time.time()


@plugin.tool(side_effects="none")
def told(ctx: Context) -> list:
    \"\"\"Reads the recorded clock.\"\"\"
    return [ctx.now().isoformat() for _ in range(600)]


@plugin.tool(side_effects="write", requires=["write"])
def note(folder: str, recorded: bool, ctx: Context) -> str:
    \"\"\"Writes a file, as a side effect or not.\"\"\"
    def write():
        with open(f"{folder}/note", "a") as file:
            file.write("a line\\n")
        return "written"
    return ctx.side_effect("note", write) if recorded else write()


@plugin.tool(side_effects="external")
def stumble(port: int, ctx: Context) -> list:
    \"\"\"Gets errors, and says which.\"\"\"
    found = []
    def fails():
        raise Odd("a", 2)
    def missing():
        return open("/nowhere").read()
    for name, attempt in (("odd", fails), ("missing", missing)):
        try:
            ctx.side_effect(name, attempt)
        except Odd as error:
            found.append(["odd", *error.args])
        except OSError as error:
            found.append([type(error).__name__, error.errno])
    for url in (f"http://127.0.0.1:{port}/missing", "http://elsewhere.example/"):
        try:
            found.append(ctx.http.get(url).status)
        except ToolError as error:
            found.append([type(error).__name__, error.reason])
    return found


@plugin.tool(side_effects="none")
def gives_up(ctx: Context) -> str:
    \"\"\"Fails for what it got.\"\"\"
    def fails():
        raise ValueError("no luck")
    return ctx.side_effect("luck", fails)


@plugin.tool(side_effects="read", requires=["secret:KEY"])
def signs(ctx: Context) -> str:
    \"\"\"Says what it must not.\"\"\"
    return f"signed with {ctx.secret('KEY')}"


@plugin.tool(side_effects="none")
def greedy(ctx: Context) -> int:
    \"\"\"Takes more than is kept.\"\"\"
    for _ in range(12000):
        ctx.now()
    return 1
"""
fumehood_replay = pytest_plugin.fumehood_replay
VALUE = "a-secret-value-of-some-length"
CALLS = 16
TOOLS = ("gather", "note", "stumble")


@dataclass
class Place:
    """A sidecar's folder, after its calls."""

    folder: Path
    notes: Path
    hits: list[str]

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
        (folder / "key").write_text(VALUE)
        (folder / "key").chmod(0o600)
        plugin = write_plugin(folder / "plugin", "outside", CODE)
        hits: list[str] = []
        asyncio.run(_record(folder, plugin, notes, hits))
        yield Place(folder, notes, hits)


async def _record(folder: Path, plugin: Path, notes: Path, hits: list[str]) -> None:
    with serving() as web:
        port = web.port
        allowed = "".join(f'[plugin.tools.{tool}]\npermission = "allow"\n' for tool in TOOLS)
        grants = (
            f'max_side_effects = "external"\nwrite = ["{notes}"]\nhosts = ["127.0.0.1:{port}"]\n'
            f'{allowed}[plugin.tools.signs]\nsecrets = ["KEY"]\n'
        )
        more = f'[egress]\nallow_private = ["127.0.0.1"]\n[secrets.KEY]\nfile = "{folder / "key"}"\n'
        with running_sidecar([(plugin, grants)], more=more, at=folder) as sidecar:
            async with sidecar.channel() as channel:
                stub = ToolServiceStub(channel)

                async def call(run: str, call_id: str, tool: str, **arguments: object) -> None:
                    context = CallContext(request_id=run, session_id="everything")
                    text = json.dumps(arguments)
                    await stub.CallTool(
                        pb.CallToolRequest(tool=tool, arguments_json=text, call_id=call_id, context=context)
                    )

                await asyncio.gather(*(call("eight", f"g{part}", "gather", port=port, part=part) for part in range(8)))
                for run, tool, arguments in (
                    ("mixed", "clock", {}),
                    ("mixed", "told", {}),
                    ("mixed", "greedy", {}),
                    ("effects", "note", {"folder": str(notes), "recorded": True}),
                    ("errors", "stumble", {"port": port}),
                    ("errors", "gives_up", {}),
                    ("secrets", "signs", {}),
                ):
                    await call(run, tool, tool, **arguments)
                await call("effects", "bare", "note", folder=str(notes), recorded=False)
        hits += [path for _, path, _, _ in web.requests]


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


def test_recorded_values_stay_in_a_journal_that_verifies(place: Place) -> None:
    assert fumehood("journal", "verify", "--config", place.config).status == 0
