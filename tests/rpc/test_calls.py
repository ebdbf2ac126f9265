from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise

import grpc
import pytest
from fumehood.v1 import error_pb2, tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from google.protobuf.duration_pb2 import Duration

from tests.rpc.support import BOUND_S, POLL_S, call, logged, refused, text_of
from tests.sidecar import Sidecar


async def test_a_call_runs_in_a_sandbox_and_says_which(tools: ToolServiceStub) -> None:
    result = (await tools.CallTool(call("echo", {"text": "hi", "times": 2}, call_id="my.id"), timeout=BOUND_S)).result
    assert not result.is_error
    assert (result.call_id, result.tool, text_of(result)) == ("my.id", "echo", "hihi")
    assert json.loads(result.details_json) == "hihi"
    assert result.attempts == 1
    assert result.usage.wall_time.nanos > 0
    assert result.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_NONE
    assert {"namespaces", "seccomp", "landlock"} <= {layer.name for layer in result.sandbox.layers}


async def test_bytes_that_are_no_request_are_refused_in_words(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        for method in ("CallTool", "ListTools"):
            ask = channel.unary_unary(f"/fumehood.v1.ToolService/{method}")
            assert await refused(ask(b"\xff\xff")) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
        stream = channel.unary_stream("/fumehood.v1.ToolService/StreamTool")(b"\x0a\xff")
        assert await refused(stream.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
        session = channel.stream_stream("/fumehood.v1.ToolService/Session")()
        await session.write(b"\xff\xff")
        answer = pb.SessionResponse.FromString(await session.read())
        assert answer.refused.error.code == "REQUEST_INVALID"
        # The stream goes on.
        await session.write(pb.SessionRequest(call=call("echo", {"text": "on"})).SerializeToString())
        assert text_of(pb.SessionResponse.FromString(await session.read()).finished) == "on"
        await session.done_writing()
    assert not [line for line in sidecar.log() if line["event"] == "library_log"]


async def test_coerced_arguments_reach_the_tool(tools: ToolServiceStub) -> None:
    result = (await tools.CallTool(call("echo", {"text": "a", "times": "3"}, call_id="mended"), timeout=BOUND_S)).result
    assert text_of(result) == "aaa"
    assert [(each.pointer, each.rule, each.message) for each in result.coercions] == [
        ("/times", "number", '"3" was taken as 3')
    ]
    recorded = (await tools.GetCall(pb.GetCallRequest(call_id="mended"), timeout=BOUND_S)).result
    assert recorded.coercions == result.coercions
    result = (await tools.CallTool(call("echo", {"text": "a", "times": 3}), timeout=BOUND_S)).result
    assert not result.coercions


@pytest.mark.parametrize(
    ("request_", "code", "category"),
    [
        (call("nothing"), "TOOL_NOT_FOUND", error_pb2.FAILURE_CATEGORY_TOOL),
        (call("echo"), "TOOL_EXECUTION_FAILED", error_pb2.FAILURE_CATEGORY_TOOL),
        (pb.CallToolRequest(tool="echo", arguments_json="{"), "TOOL_EXECUTION_FAILED", error_pb2.FAILURE_CATEGORY_TOOL),
        (call("fail"), "TOOL_EXECUTION_FAILED", error_pb2.FAILURE_CATEGORY_TOOL),
        (call("write"), "TOOL_UNAVAILABLE", error_pb2.FAILURE_CATEGORY_TOOL),
        (call("die"), "TOOL_UNAVAILABLE", error_pb2.FAILURE_CATEGORY_TOOL),
        (call("shout", {"size": 2**20 + 1}), "TOOL_RESOURCE_EXHAUSTED", error_pb2.FAILURE_CATEGORY_TOOL),
    ],
)
async def test_what_goes_wrong_with_a_tool_is_a_result_that_a_model_can_read(
    tools: ToolServiceStub, request_: pb.CallToolRequest, code: str, category: error_pb2.FailureCategory.ValueType
) -> None:
    result = (await tools.CallTool(request_, timeout=BOUND_S)).result
    assert result.is_error
    assert (result.error.code, result.error.category) == (code, category)
    assert text_of(result)


@pytest.mark.parametrize(
    "request_",
    [
        pb.CallToolRequest(),
        call("x" * 257),
        call("echo", call_id="with space"),
        call("echo", call_id="x" * 129),
        call("echo", timeout=Duration(seconds=0)),
        call("echo", timeout=Duration(seconds=-1)),
        call("echo", timeout=Duration(seconds=-1, nanos=1_999_999_999)),
        call("echo", timeout=Duration(seconds=1, nanos=-1)),
        call("echo", context=tool_pb2.CallContext(trace_id="x" * 257)),
        call("echo", {"text": "x" * 2**20}),
        call("echo", {"text": "é" * 200_000}, call_id="é"),
    ],
)
async def test_a_request_that_is_wrong_in_itself_is_refused(
    tools: ToolServiceStub, request_: pb.CallToolRequest
) -> None:
    status = await refused(tools.CallTool(request_, timeout=BOUND_S))
    assert status == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def test_context_at_its_bounds_is_taken_andlogged(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    context = tool_pb2.CallContext(
        request_id="r" * 256, session_id="sesión", trace_id="0af7651916cd43dd8448eb211c80319c"
    )
    result = (await tools.CallTool(call("echo", {"text": "x"}, context=context, call_id="ctx"), timeout=BOUND_S)).result
    assert not result.is_error
    async with asyncio.timeout(BOUND_S):
        while not (lines := [line for line in sidecar.log() if line.get("call_id") == "ctx"]):
            await asyncio.sleep(POLL_S)
            await tools.GetTool(pb.GetToolRequest(name="echo"))
    (line,) = lines
    assert (line["request_id"], line["session_id"]) == ("r" * 256, "sesión")
    assert line["trace_id"] == context.trace_id
    assert line["span_id"] == ""
    assert line["worker_id"].startswith("speech-")


async def test_the_callers_deadline_cancels_the_call(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    await tools.CallTool(call("echo", {"text": "connected"}), timeout=BOUND_S)
    try:  # within the deadline it comes to the sidecar
        result = (await tools.CallTool(call("wait", {"seconds": 60}, call_id="late"), timeout=2.0)).result
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017 - either side may be first
    else:
        assert result.error.code == "CANCELLED_TIMEOUT"
    await logged(sidecar, tools, "late", "CANCELLED_TIMEOUT")


async def test_the_timeout_of_the_request_is_a_typed_result(tools: ToolServiceStub) -> None:
    request = call("wait", {"seconds": 60}, timeout=Duration(nanos=100_000_000))
    result = (await tools.CallTool(request, timeout=BOUND_S)).result
    assert (result.error.code, result.error.retryable) == ("TOOL_TIMEOUT", True)
    assert json.loads(result.error.details_json)["ended_by"] == "cancel_frame"


async def test_a_tool_that_ignores_its_end_is_killed_and_the_next_call_runs(tools: ToolServiceStub) -> None:
    request = call("hang", timeout=Duration(nanos=100_000_000))
    result = (await tools.CallTool(request, timeout=BOUND_S)).result
    assert result.error.code == "TOOL_TIMEOUT"
    assert json.loads(result.error.details_json)["ended_by"] != "cancel_frame"
    result = (await tools.CallTool(call("echo", {"text": "next"}), timeout=BOUND_S)).result
    assert text_of(result) == "next"


async def test_a_caller_that_goes_away_cancels_its_call(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    calling = tools.CallTool(call("wait", {"seconds": 60}, call_id="gone"))
    await _until_under_way(sidecar, tools, "gone")
    calling.cancel()
    await logged(sidecar, tools, "gone", "CANCELLED_SIGNAL")


async def test_a_call_can_be_cancelled_by_its_id(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    calling = tools.CallTool(call("wait", {"seconds": 60}, call_id="stop-me"), timeout=BOUND_S)
    await _until_under_way(sidecar, tools, "stop-me")
    await tools.CancelCall(pb.CancelCallRequest(call_id="stop-me", reason="enough"), timeout=BOUND_S)
    result = (await calling).result
    assert result.error.code == "CANCELLED_SIGNAL"
    assert json.loads(result.error.details_json)["note"] == "enough"
    again = tools.CancelCall(pb.CancelCallRequest(call_id="stop-me"), timeout=BOUND_S)
    assert await refused(again) == (grpc.StatusCode.NOT_FOUND, "CALL_NOT_FOUND")


async def test_ids_that_the_sidecar_makes_tell_nothing_of_those_of_other_calls(tools: ToolServiceStub) -> None:
    """An id is all that one needs to cancel a call, or to take its place."""
    answers = [await tools.CallTool(call("echo", {"text": "x"}), timeout=BOUND_S) for _ in range(20)]
    ids = [answer.result.call_id for answer in answers]
    shaped = [re.fullmatch(r"call-([0-9a-f]{32})", each) for each in ids]
    numbers = [int(each[1], 16) for each in shaped if each]
    assert len(set(numbers)) == len(ids)
    # Of two random numbers of 128 bits, 64 are unlike: fewer than 24 in one of 19 pairs once in 10^12 runs.
    assert min((one ^ two).bit_count() for one, two in pairwise(numbers)) >= 24


@pytest.mark.parametrize("request_", [pb.CancelCallRequest(), pb.CancelCallRequest(call_id="x", reason="r" * 257)])
async def test_a_wrong_cancellation_is_refused(tools: ToolServiceStub, request_: pb.CancelCallRequest) -> None:
    assert await refused(tools.CancelCall(request_)) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def test_a_second_call_of_the_same_id_is_refused_while_the_first_runs(
    tools: ToolServiceStub, sidecar: Sidecar
) -> None:
    calling = tools.CallTool(call("wait", {"seconds": 60}, call_id="twice"), timeout=BOUND_S)
    await _until_under_way(sidecar, tools, "twice")
    second = tools.CallTool(call("echo", {"text": "x"}, call_id="twice"), timeout=BOUND_S)
    assert await refused(second) == (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
    await tools.CancelCall(pb.CancelCallRequest(call_id="twice"))
    await calling


async def test_a_stream_tells_the_start_each_update_and_the_end(tools: ToolServiceStub) -> None:
    stream = tools.StreamTool(pb.StreamToolRequest(call=call("chatter", {"count": 5})), timeout=BOUND_S)
    events = [event async for event in stream]
    assert events[0].started.tool == "chatter"
    assert [event.update.message for event in events[1:-1]] == [f"word {index}" for index in range(5)]
    assert [event.update.sequence for event in events[1:-1]] == [1, 2, 3, 4, 5]
    assert {event.update.call_id for event in events[1:-1]} == {events[0].started.call_id}
    assert text_of(events[-1].finished) == "said"


async def test_a_slow_reader_loses_updates_and_sees_the_gap(tools: ToolServiceStub) -> None:
    stream = tools.StreamTool(pb.StreamToolRequest(call=call("chatter", {"count": 30_000})), timeout=BOUND_S)
    events = [event async for event in stream]
    sequences = [event.update.sequence for event in events[1:-1]]
    assert sequences == sorted(set(sequences))
    assert sequences[-1] == 30_000, "the last word is kept"
    assert len(sequences) < 30_000
    assert text_of(events[-1].finished) == "said"


async def test_leaving_a_stream_cancels_its_call(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    request = pb.StreamToolRequest(call=call("wait", {"seconds": 60}, call_id="left"))
    stream = tools.StreamTool(request)
    async with asyncio.timeout(BOUND_S):
        async for event in stream:
            if event.HasField("update"):
                break
    stream.cancel()
    await logged(sidecar, tools, "left", "CANCELLED_SIGNAL")


async def test_a_stream_that_is_refused_is_a_status(tools: ToolServiceStub) -> None:
    stream = tools.StreamTool(pb.StreamToolRequest())
    assert await refused(stream.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def _until_under_way(sidecar: Sidecar, tools: ToolServiceStub, call_id: str) -> None:
    """Return once the tool `wait` has said that it has begun."""
    async with asyncio.timeout(BOUND_S):
        while not any(line.get("call_id") == call_id for line in sidecar.log()):
            await asyncio.sleep(POLL_S)
            await tools.GetTool(pb.GetToolRequest(name="echo"))
