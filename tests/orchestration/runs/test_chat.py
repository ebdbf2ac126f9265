"""Mode `chat`: answers, tools by the rules of batches, and what ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.scripted import ScriptedModel

from .bench import TIMEOUT_S, asked, events_of, kinds, model_sidecar, refused, run, runs_of


async def test_a_model_calls_tools_until_it_answers(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
    scripted_model.says("3 and 7.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked("Add them."))
    assert (response.content, response.state) == ("3 and 7.", "COMPLETE")
    assert not response.HasField("error")
    assert [each.tool for each in response.tool_calls_made] == ["add", "add"]
    assert response.usage.inferences == 2
    assert response.usage.input_tokens == 20
    told = [each["content"] for each in scripted_model.requests()[1]["messages"] if each["role"] == "tool"]
    assert told == ["3", "7"], "results come in the order in which they were asked for"


async def test_a_stream_tells_what_happens_as_it_does(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("wait", {"seconds": 0.0}))
    scripted_model.says("It waited for nothing at all.", piece=5)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            events = await events_of(stub, asked())
    told = kinds(events)
    assert told[0] == "started"
    assert told[-1] == "finished"
    assert "".join(each.text.text for each in events) == "It waited for nothing at all."
    assert told.count("text") > 1
    ordered = ["inference_started", "inference_finished", "tool_started", "tool_update", "tool_finished"]
    assert [each for each in dict.fromkeys(told) if each in ordered] == ordered
    states = [each.transition.to_state for each in events if each.HasField("transition")]
    assert states == ["PREPARE", "EXECUTE", "VALIDATE", "COMPLETE"]
    assert [each.sequence for each in events[1:-1]] == list(range(1, len(events) - 1))


async def test_failures_of_tools_are_told_to_the_model_and_end_nothing(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("fail", {"why": "no luck"}), ("add", {"a": "x"}), ("add", {"a": 1, "b": 1}), ("rm", {}))
    scripted_model.says("I see.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked())
    assert response.content == "I see."
    codes = [each.error.code for each in response.tool_calls_made]
    assert codes == ["TOOL_EXECUTION_FAILED", "TOOL_EXECUTION_FAILED", "", "TOOL_DENIED"]
    told = [each["content"] for each in scripted_model.requests()[1]["messages"] if each["role"] == "tool"]
    assert "no luck" in told[0]
    assert "/b" in told[1], "each fault is named"
    assert told[2] == "2"
    assert not response.tool_calls_made[3].call_id, "nothing was called"


async def test_a_model_that_calls_tools_for_ever_is_stopped(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 1}), times=None)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked(chat=pb.ChatOptions(max_iterations=3)))
    assert (response.error.code, response.state) == ("ORCHESTRATION_ITERATION_LIMIT", "FAILED")
    assert len(response.tool_calls_made) == 3


async def test_tools_end_a_run_when_all_of_an_answer_ask_for_that(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("stop", {}), ("add", {"a": 1, "b": 1}))
    scripted_model.calls(("stop", {}), ("stop", {}), text="Enough.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked())
    assert (response.content, response.state) == ("Enough.", "COMPLETE")
    assert len(scripted_model.requests()) == 2


async def test_a_model_is_offered_what_the_request_allows(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("a")
    scripted_model.says("b")
    scripted_model.says("c")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            await run(stub, asked())
            await run(stub, asked(allowed_tools=["add", "unknown"]))
            await run(stub, asked(no_tools=True))
    offered = [[tool["function"]["name"] for tool in each.get("tools") or ()] for each in scripted_model.requests()]
    assert offered == [["add", "fail", "hold", "note", "slow_note", "stop", "wait"], ["add"], []]


async def test_without_an_engine_a_run_says_what_to_do(tmp_path: Path) -> None:
    with model_sidecar(None, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked())
    assert response.error.code == "CONFIG_NO_ENGINE"
    assert "[[engine]]" in response.error.message


async def test_a_caller_that_leaves_ends_its_run_and_its_calls(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("wait", {"seconds": 25}))
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            request = asked(request_id="left")
            call = stub.StreamRun(pb.StreamRunRequest(request=request), timeout=TIMEOUT_S)
            async for each in call:
                if each.HasField("tool_update"):
                    break
            call.cancel()
            while True:  # until it has ended
                try:
                    response = await run(stub, request)
                except grpc.aio.AioRpcError as exc:
                    assert exc.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
                    continue
                break
    assert (response.error.code, response.state) == ("CANCELLED_SIGNAL", "CANCELLED")


async def test_a_deadline_ends_a_run(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("wait", {"seconds": 25}))
    request = asked()
    request.hints.timeout.FromMilliseconds(1_500)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert (response.error.code, response.state) == ("CANCELLED_TIMEOUT", "CANCELLED")


async def test_messages_from_outside_reach_the_model_and_prolong_the_run(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    told_all = tmp_path / "signals/told-all"
    scripted_model.calls(("hold", {"path": str(told_all)}))
    scripted_model.says("First.")
    scripted_model.says("Second.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            request = asked(request_id="steered")
            running = asyncio.create_task(run(stub, request))
            await scripted_model.arrived(1)
            for kind, text in ((pb.STEER_KIND_STEER, "Be short."), (pb.STEER_KIND_FOLLOW_UP, "And then?")):
                said = [pb.Message(role=pb.MESSAGE_ROLE_USER, text=text)]
                await stub.SteerRun(pb.SteerRunRequest(request_id="steered", messages=said, kind=kind))
            told_all.touch()
            response = await running
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.SteerRun(pb.SteerRunRequest(request_id="steered", messages=said))
    assert response.content == "Second."
    texts = [[each["content"] for each in body["messages"]] for body in scripted_model.requests()]
    assert "Be short." in texts[1]
    assert "And then?" not in texts[1]
    assert texts[2].count("Be short.") == 1
    assert texts[2][-1] == "And then?"
    assert refused(caught.value)[0] is grpc.StatusCode.NOT_FOUND


BAD = {
    "no message": pb.SystemRequest(),
    "a message without a role": pb.SystemRequest(messages=[pb.Message(text="x")]),
    "an id with a space": asked(request_id="a b"),
    "continues without an id": asked(continue_if_disconnected=True),
    "a result of no call": pb.SystemRequest(messages=[pb.Message(role=pb.MESSAGE_ROLE_TOOL, tool_use_id="x")]),
    "a schema in mode chat": asked(output=pb.OutputContract(schema_json="{}")),
    "options of another mode": asked(redundant=pb.RedundantOptions(replicas=2)),
    "a temperature of 3": asked(hints=pb.ExecutionHints(temperature=3)),
    "options for the vendor": asked(hints=pb.ExecutionHints(vendor_options_json="{}")),
    "a thousand and one messages": pb.SystemRequest(messages=1_001 * [pb.Message(role=pb.MESSAGE_ROLE_USER, text="x")]),
}


async def test_requests_that_are_wrong_in_themselves_are_refused_by_field(tmp_path: Path) -> None:
    with model_sidecar(None, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            found = {}
            for name, request in BAD.items():
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await run(stub, request)
                found[name] = caught.value.code()
    assert found == dict.fromkeys(BAD, grpc.StatusCode.INVALID_ARGUMENT)
