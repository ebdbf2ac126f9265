"""What hostile callers, models and tools send: each is refused or borne, and the sidecar serves the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.scripted import ScriptedModel, events

from .bench import asked, events_of, model_sidecar, refused, run, runs_of

USER, ASSISTANT = pb.MESSAGE_ROLE_USER, pb.MESSAGE_ROLE_ASSISTANT
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def structured(schema: str, **fields: Any) -> pb.SystemRequest:
    return asked(mode=pb.MODE_STRUCTURED, no_tools=True, output=pb.OutputContract(schema_json=schema), **fields)


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def with_uses(count: int) -> pb.SystemRequest:
    message = pb.Message(role=ASSISTANT, tool_uses=[pb.ToolUse(id=f"u{each}") for each in range(count)])
    return pb.SystemRequest(messages=[message, pb.Message(role=USER, text="Go.")])


REFUSED = {
    "deep_schema": structured(nested(1_000)),
    "deep_value": asked(
        mode=pb.MODE_STRUCTURED,
        output=pb.OutputContract(rules=[pb.ValidationRule(name="r", one_of_json=[nested(1_000)])]),
    ),
    "values": asked(
        mode=pb.MODE_STRUCTURED,
        output=pb.OutputContract(rules=[pb.ValidationRule(name="r", one_of_json=["1"] * 50_000)]),
    ),
    "tool_uses": with_uses(1_001),
    "tool_names": asked(allowed_tools=["x" * 257]),
}


async def test_requests_that_would_hold_the_loop_up_are_refused_and_large_numbers_are_not(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.says({"n": 1})
    wrong = {}
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            for name, request in REFUSED.items():
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await run(stub, request)
                if refused(caught.value)[0] is not grpc.StatusCode.INVALID_ARGUMENT:
                    wrong[name] = refused(caught.value)
            numbers = structured(json.dumps(SCHEMA), budget=pb.RunBudget(max_tokens=2**60))
            response = await run(stub, numbers)
            scripted_model.says("Fine.")
            allowed = await run(stub, with_uses(1_000))
    assert not wrong
    assert (response.output_json, response.error.message) == ('{"n": 1}', "")
    assert allowed.content == "Fine."


async def test_a_model_that_writes_halves_of_characters_is_read_all_the_same(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    call = {"index": 0, "id": "\ud800", "function": {"name": "no\udfff\x1b[2J", "arguments": '{"a": "\ud800"}'}}
    numbers = {"index": 1, "id": "n", "function": {"name": "add", "arguments": '{"a": 1' + "0" * 400 + ', "b": 1}'}}
    deltas = {"content": "half \ud83d"}, {"content": "\ude00 \udc00"}, {"tool_calls": [call, numbers]}
    scripted_model.answers_raw(*events(*deltas, finish="tool_calls"))
    scripted_model.answers_raw(*events({"content": "Done."}))
    with model_sidecar(scripted_model, tmp_path, raw=True) as sidecar:
        async with runs_of(sidecar) as stub:
            told = await events_of(stub, asked(request_id="halves"))
            again = await run(stub, asked(request_id="halves"))
    response = told[-1].finished
    assert (response.state, response.content) == ("COMPLETE", "Done.")
    assert [each.error.code for each in response.tool_calls_made] == ["TOOL_DENIED", "TOOL_EXECUTION_FAILED"]
    assert response.tool_calls_made[0].arguments_json == '{"a": "\ufffd"}'
    assert again == response


async def test_a_conversation_that_grows_beyond_any_model_ends_the_run(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "no", "arguments": "x" * 900_000}}
    scripted_model.answers_raw(*events({"tool_calls": [call]}, finish="tool_calls"), times=20)
    with model_sidecar(scripted_model, tmp_path, raw=True) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked(no_tools=True))
    assert (response.state, response.error.code) == ("FAILED", "INFERENCE_CONTEXT_EXCEEDED")
    assert response.usage.inferences == 10, "those below the bound are answered"


async def test_what_a_run_answers_fits_the_message_that_clients_take(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    large = "x" * (2 * 1024 * 1024)
    scripted_model.says({"a": large}, piece=500_000)
    scripted_model.says(large, piece=500_000)
    scripted_model.says(large + large[: len(large) * 3 // 4], piece=500_000)
    scripted_model.says("Short.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            twice = await run(stub, structured('{"type": "object"}'))
            once = await run(stub, asked())
            longest = await run(stub, asked(request_id="longest"))
            assert await run(stub, asked(request_id="longest")) == longest
            assert (await run(stub, asked())).content == "Short."
    assert (twice.state, twice.content, json.loads(twice.output_json)) == ("COMPLETE", "", {"a": large})
    assert (once.state, once.content) == ("COMPLETE", large)
    assert (longest.state, longest.error.code, longest.content) == ("FAILED", "INFERENCE_MALFORMED_RESPONSE", "")
    assert json.loads(longest.error.details_json)["reason"] == "response_too_large"
