"""A recorded run is carried out again with no engine and no tool."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import journal_service_pb2_grpc as journal_grpc
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.cli.command import fumehood
from tests.orchestration.scripted import ScriptedModel

from .bench import TIMEOUT_S, asked, model_sidecar, run, runs_of

SCHEMA = json.dumps({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]})
PLAN = {
    "steps": [
        {"name": "one", "kind": "tool", "tool": "add", "arguments": {"a": 1, "b": 2}},
        {"name": "tell", "kind": "infer", "prompt": ["Say it: ", {"$from": "one"}]},
    ]
}


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield Path(name)


def script(model: ScriptedModel) -> None:
    model.calls(("add", {"a": 1, "b": 2}), ("fail", {"why": "no"}), ("rm", {}), when="chat")
    model.says("Three.", when="chat")
    model.says("And so on.", when="chat")
    model.says("nothing", when="structured")
    model.says('{"sum": 3}', when="structured")
    model.says("yes", when="redundant", times=3)
    model.says("Three.", when="Say it")
    model.calls(("add", {"a": 1, "b": 2}), when="limit", times=None)


REQUESTS = {
    "chat": asked("chat", request_id="chat", session_id="s"),
    "again": asked("chat once more", request_id="again", session_id="s"),
    "structured": asked(
        "structured",
        request_id="structured",
        mode=pb.MODE_STRUCTURED,
        output=pb.OutputContract(schema_json=SCHEMA),
        no_tools=True,
    ),
    "redundant": asked("redundant", request_id="redundant", mode=pb.MODE_REDUNDANT),
    "plan": asked("plan", request_id="plan", mode=pb.MODE_PLAN, plan=pb.PlanOptions(plan_json=json.dumps(PLAN))),
    "limit": asked("limit", request_id="limit", chat=pb.ChatOptions(max_iterations=2)),
    "budget": asked("limit", request_id="budget", budget=pb.RunBudget(max_tool_calls=1)),
}


async def test_runs_of_every_mode_replay_from_their_record(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    script(scripted_model)
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            states = {name: (await run(stub, each)).state for name, each in REQUESTS.items()}
    count = len(scripted_model.requests())
    found = {}
    with model_sidecar(None, tmp_path, at=state) as sidecar:  # no engine any more
        async with sidecar.channel() as channel:
            for name in REQUESTS:
                asking = journal_pb.ReplayRunRequest(run=name)
                answers = journal_grpc.JournalServiceStub(channel).ReplayRun(asking, timeout=TIMEOUT_S)
                found[name] = [each async for each in answers][-1].summary.run
    assert states == dict.fromkeys(REQUESTS, "COMPLETE") | {"limit": "FAILED", "budget": "FAILED"}
    verified = (journal_pb.REPLAY_VERDICT_VERIFIED, "")
    assert {name: (each.verdict, each.differs) for name, each in found.items()} == dict.fromkeys(REQUESTS, verified)
    assert len(scripted_model.requests()) == count


def replayed(state: Path, run_id: str) -> tuple[int, dict[str, str]]:
    done = fumehood("journal", "replay", run_id, "--json", "--config", str(state / "fumehood.toml"))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"run_id"')]
    return done.status, lines[-1] if lines else {}


async def test_a_replay_says_what_differs_and_what_can_not_be_replayed(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    script(scripted_model)
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            await run(stub, REQUESTS["chat"])
            late = asked("late", request_id="late")
            late.hints.timeout.FromMilliseconds(300)
            scripted_model.says("late", latency=3_000, when="late")
            await run(stub, late)
    assert replayed(state, "chat") == (0, {"run_id": "chat", "verdict": "verified", "why": ""})
    code, told = replayed(state, "late")
    assert (code, told["verdict"]) == (0, "not_run")
    assert "CANCELLED_TIMEOUT" in told["why"]
    with contextlib.closing(sqlite3.connect(state / ".fumehood/journal.db", isolation_level=None)) as journal:
        rows = journal.execute("SELECT position, part, data FROM payloads").fetchall()
        (place,) = [each[:2] for each in rows if b"Three." in each[2] and b"finish_reason" in each[2]]
        (data,) = [each[2] for each in rows if each[:2] == place]
        changed = (data.replace(b"Three.", b"Four."), *place)
        journal.execute("UPDATE payloads SET data = ? WHERE position = ? AND part = ?", changed)
    code, told = replayed(state, "chat")
    assert (code, told["verdict"]) == (1, "diverged")
    assert "Four." in told["why"]
