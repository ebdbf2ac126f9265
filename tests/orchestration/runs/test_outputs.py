"""Outputs under contracts, through gRPC: grammars by name, rules, judges, votes, hostile text, kills and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from google.protobuf.duration_pb2 import Duration

from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar

from .bench import TIMEOUT_S, asked, events_of, model_sidecar, run, runs_of

NUMBER = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


async def test_a_grammar_is_named_by_the_operator_and_checked_on_the_way_back(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    grammar = tmp_path / "answer.gbnf"
    grammar.write_text('root ::= "yes" | "no"\n')
    more = f"[orchestration]\ngrammars = {{ answer = {json.dumps(str(grammar))} }}\n"
    scripted_model.says("Well, yes.")
    scripted_model.says("yes")
    found = {}
    with model_sidecar(scripted_model, tmp_path, more=more) as sidecar:
        async with runs_of(sidecar) as stub:
            for name in ("answer", "nowhere"):
                output = pb.OutputContract(grammar=name, strict=True)
                found[name] = await run(stub, asked(mode=pb.MODE_STRUCTURED, output=output, no_tools=True))
    assert (found["answer"].output_json, found["answer"].usage.inferences) == ('"yes"', 2)
    assert (found["nowhere"].error.code, found["nowhere"].usage.inferences) == ("CONFIG_GRAMMAR_NOT_FOUND", 0)
    told = [body["messages"][-1]["content"] for body in scripted_model.requests()]
    assert grammar.read_text() in told[0], "the engine knows no grammars, so the model is told"
    assert "leaves the grammar at character 0" in told[1]


async def test_rules_and_a_judge_give_the_confidence(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    few = pb.ValidationRule(name="few", pointer="/n", maximum=9)
    output = pb.OutputContract(schema_json=NUMBER, rules=[few], semantic_check="Is it odd?")
    for text in ('{"n": 10}', '{"n": 9}', '{"answer": "yes"}', '{"n": 8}', '{"answer": "no", "reason": "It is even."}'):
        scripted_model.says(text)
    responses = []
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            for retries in (1, -1):
                options = pb.StructuredOptions(max_retries=retries)
                request = asked(mode=pb.MODE_STRUCTURED, output=output, structured=options, no_tools=True)
                responses.append(await run(stub, request))
    right, wrong = responses
    assert (right.output_json, right.confidence, right.confidence_source) == ('{"n": 9}', 1.0, "validation")
    assert not right.HasField("error")
    assert (wrong.output_json, wrong.state) == ('{"n": 8}', "COMPLETE")
    assert wrong.error.code == "VALIDATION_SEMANTIC_FAILED"
    assert "It is even." in wrong.error.message
    assert 0 < wrong.confidence < 1
    assert json.loads(wrong.error.details_json)["faults"][0]["rule"] == "meaning"


async def test_replicas_vote_on_a_part_and_each_is_mended(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    for text in ("{'n': 1, 'why': 'a'}", '```json\n{"n": 1, "why": "b"}\n```', '{"n": 2}'):
        scripted_model.says(text)
    request = asked(
        mode=pb.MODE_REDUNDANT,
        output=pb.OutputContract(schema_json=NUMBER, repair_allowed=True),
        redundant=pb.RedundantOptions(vote_pointer="/n"),
    )
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert json.loads(response.output_json)["n"] == 1
    assert round(response.confidence, 2) == 0.67
    assert not any(body.get("tools") for body in scripted_model.requests())


@pytest.mark.slow("seconds of processor time, as the checks' own test")
async def test_text_made_to_take_for_ever_ends_its_own_run_and_holds_up_no_other(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.says('{"' * 10_000, piece=20_000, when="hostile")
    scripted_model.says("Hello.", when="kind", times=None)
    hostile = asked(
        "hostile",
        mode=pb.MODE_STRUCTURED,
        output=pb.OutputContract(schema_json=NUMBER, repair_allowed=True, strict=True),
        structured=pb.StructuredOptions(max_retries=-1),
        no_tools=True,
    )
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            task = asyncio.create_task(run(stub, hostile))
            await scripted_model.arrived(1)
            answered = 0
            while not task.done():
                answered += (await run(stub, asked("kind", no_tools=True))).content == "Hello."
            response = await task
    assert response.error.code == "CONSTRAINT_JSON_INVALID"
    assert "too long" in response.error.message
    assert answered > 1


@pytest.mark.parametrize("mode", [pb.MODE_STRUCTURED, pb.MODE_REDUNDANT])
async def test_a_run_that_is_out_of_time_is_cancelled_with_what_it_asked(
    scripted_model: ScriptedModel, tmp_path: Path, mode: pb.Mode
) -> None:
    scripted_model.says('{"n": 1}', streamingProfile={"ttft": 60_000}, times=None)
    output = pb.OutputContract(schema_json=NUMBER)
    request = asked(mode=mode, output=output, no_tools=True, hints=pb.ExecutionHints(timeout=Duration(seconds=5)))
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
            await scripted_model.abandoned(1 if mode == pb.MODE_STRUCTURED else 3)
    assert (response.state, response.error.code) == ("CANCELLED", "CANCELLED_TIMEOUT")


async def killed_after(sidecar: Sidecar, request: pb.SystemRequest, answers: int, model: ScriptedModel) -> None:
    """Kill the sidecar once so many answers are on record, and the model is asked for one more."""
    expected = answers + 1

    async def run_until_killed() -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await run(stub, request)

    async with runs_of(sidecar) as stub, sidecar.channel() as channel, asyncio.TaskGroup() as tasks:
        tasks.create_task(run_until_killed())
        journal: Any = JournalServiceStub(channel)
        wanted = journal_pb.EventFilter(start_position=0, types=["inference_end"])
        watch = journal.WatchEvents(journal_pb.WatchEventsRequest(filter=wanted), timeout=TIMEOUT_S)
        async for message in watch:
            answers -= len(message.events)
            if answers <= 0:
                break
        await model.arrived(expected)
        watch.cancel()
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()


@pytest.mark.parametrize(
    ("mode", "answers"),
    [(pb.MODE_STRUCTURED, ["none"]), (pb.MODE_REDUNDANT, ['{"n": 1}'] * 2)],
    ids=["structured", "redundant"],
)
async def test_a_killed_run_goes_on_without_asking_again_for_what_is_on_record(
    scripted_model: ScriptedModel, tmp_path: Path, mode: pb.Mode, answers: list[str]
) -> None:
    output = pb.OutputContract(schema_json=NUMBER, strict=True)
    request = asked(request_id="killed", mode=mode, output=output, no_tools=True)
    for text in answers:
        scripted_model.says(text)
    scripted_model.says('{"n": 1}', streamingProfile={"ttft": 60_000})
    with tempfile.TemporaryDirectory(prefix="fh-") as state:
        with model_sidecar(scripted_model, tmp_path, at=Path(state)) as sidecar:
            await killed_after(sidecar, request, len(answers), scripted_model)
        scripted_model.clear()
        scripted_model.says('{"n": 1}')
        with model_sidecar(scripted_model, tmp_path, at=Path(state)) as sidecar:
            async with runs_of(sidecar) as stub:
                events = await events_of(stub, request)
    response = events[-1].finished
    assert (response.output_json, response.state) == ('{"n": 1}', "COMPLETE")
    assert len(scripted_model.requests()) == 1
    finished = [each.inference_finished.recorded for each in events if each.HasField("inference_finished")]
    assert sorted(finished) == [False, *[True] * len(answers)]
