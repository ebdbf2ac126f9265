"""What a request may hold: it is counted before it is parsed, by every method that a sidecar has."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import fumehood_server.rpc
import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as approvals
from fumehood.v1 import content_pb2, tool_pb2
from fumehood.v1 import hook_service_pb2 as hooks
from fumehood.v1 import mcp_service_pb2 as mcp
from fumehood.v1 import orchestration_service_pb2 as runs
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.config.config_file import MOST_CALLS
from fumehood_server.errors import RefusedError
from fumehood_server.rpc import hook_messages, recorded_calls, run_requests, standing_messages, tool_filter
from fumehood_server.rpc.batch import MAX_BATCH_FIELDS
from fumehood_server.rpc.pacing import Pacer
from fumehood_server.rpc.parsing import PORTION, UNCOUNTED_BYTES, RequestParser
from fumehood_server.rpc.session import MAX_COMBINED_REQUESTS, MAX_MESSAGE_FIELDS
from google.protobuf import descriptor_pool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_reflection.v1alpha import reflection_pb2

from tests.rpc.support import BOUND_S, call, reason_of, text_of
from tests.sidecar import Sidecar

_REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
_UNKNOWN_FIELD = b"\xa0\x1f\x00"
_LARGE = _UNKNOWN_FIELD * (2 * 1024 * 1024 // len(_UNKNOWN_FIELD))
_TOO_MUCH = re.compile(r"the request (has more than the [\d,]+ fields, on all levels,|is longer than the [\d,]+ bytes)")


async def _methods(channel: grpc.aio.Channel) -> list[str]:
    """The path of every method of the sidecar, by its reflection."""
    stream = channel.stream_stream(
        _REFLECTION,
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )(timeout=BOUND_S)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await stream.read()
    assert not isinstance(answer, grpc.aio._typing.EOFType)
    await stream.done_writing()
    names = [each.name for each in answer.list_services_response.service]
    pool = descriptor_pool.Default()
    services = [(name, pool.FindServiceByName(name.replace("reflection.v1.", "reflection.v1alpha."))) for name in names]
    return [f"/{name}/{method.name}" for name, service in services for method in service.methods]


async def _said(channel: grpc.aio.Channel, path: str, request: bytes) -> str:
    """What the method says of the request: of its stream, or in it."""
    stream = channel.stream_stream(path)(timeout=BOUND_S)
    try:
        await stream.write(request)  # and no end of the stream: to one that has ended already it hides why
        answer: Any = await stream.read()
        if answer is grpc.aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
            return str(await stream.details())
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return str(await stream.details())
    stream.cancel()
    return str(pb.SessionResponse.FromString(answer).refused.error.message)


async def test_every_method_refuses_a_request_of_a_million_fields_and_names_the_limit(
    channel: grpc.aio.Channel, tools: ToolServiceStub
) -> None:
    paths = await _methods(channel)
    assert len({path.split("/")[1] for path in paths}) == 10
    wrong = {path: said for path in paths if _TOO_MUCH.match(said := await _said(channel, path, _LARGE)) is None}
    # None of ours. What gRPC says of it depends on how much of the request was sent by then.
    assert set(wrong) == {"/grpc.health.v1.Health/List"}
    names = ["echo", *("x" * 100 for _ in range(999))]
    assert len("".join(names)) > UNCOUNTED_BYTES
    listed = await tools.ListTools(pb.ListToolsRequest(names=names))
    assert [each.definition.name for each in listed.tools] == ["echo"]
    answer = await tools.CallTool(call("echo", {"text": "x" * 500_000}), timeout=BOUND_S)
    assert len(text_of(answer.result)) == 500_000


def test_methods_are_made_by_the_reader_and_registered_by_the_server_alone() -> None:
    folder = Path(fumehood_server.rpc.__file__).parent
    found = {
        word: sorted(each.name for each in folder.glob("*.py") if word in each.read_text())
        for word in ("_rpc_method_handler", "method_handlers_generic_handler", "add_generic_rpc_handlers", "_to_server")
    }
    assert found == {
        "_rpc_method_handler": ["reading.py"],
        "method_handlers_generic_handler": ["reading.py"],
        "add_generic_rpc_handlers": ["server.py"],
        "_to_server": [],
    }


async def test_a_session_goes_on_after_a_message_of_too_many_fields(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    nothing = [pb.SessionRequest(call=pb.CallToolRequest(context=tool_pb2.CallContext())) for _ in range(20_000)]
    await session.write(pb.SessionRequest(combined=pb.SessionRequests(requests=nothing)))
    answer: Any = await session.read()
    assert _TOO_MUCH.match(answer.refused.error.message)
    assert (answer.refused.error.code, answer.refused.call_id) == ("REQUEST_INVALID", "")
    await session.write(pb.SessionRequest(call=call("echo", {"text": "hi"})))
    answer = await session.read()
    assert text_of(answer.finished) == "hi"
    await session.done_writing()


def _call() -> pb.CallToolRequest:
    context = tool_pb2.CallContext(**{each.name: "x" * 36 for each in tool_pb2.CallContext.DESCRIPTOR.fields})
    request = call("echo", {"text": "x" * 200}, call_id="a", context=context, timeout=Duration(seconds=1, nanos=1))
    request.retry.max_attempts, request.retry.after_crash = 3, True
    for each in pb.CallToolRequest.DESCRIPTOR.fields:
        if each.type == each.TYPE_BOOL:
            setattr(request, each.name, True)
    return request


def _blocks(count: int) -> list[content_pb2.Content]:
    annotations = content_pb2.ContentAnnotations(audience=["user", "assistant"], priority=1, last_modified="2026-01-01")
    blob = content_pb2.Blob(data=b"x" * 50, media_type="image/png")
    return [content_pb2.Content(blob=blob, annotations=annotations, resource_uri="file:///a") for _ in range(count)]


def _run() -> runs.RunRequest:
    request = runs.SystemRequest(allowed_tools=["x" * 50 for _ in range(run_requests.MAX_TOOLS)])
    for number in range(run_requests.MAX_MESSAGES // 2):
        uses = [runs.ToolUse(id=f"{number}-{each}", tool="echo", arguments_json="{}") for each in range(2)]
        request.messages.add(role=runs.MESSAGE_ROLE_ASSISTANT, text="x" * 100, tool_uses=uses)
        request.messages.add(role=runs.MESSAGE_ROLE_TOOL, text="x" * 100, tool_use_id="x", is_error=True)
    for _ in range(run_requests.MAX_RULES):
        request.output.rules.add(name="x", pointer="/a", pattern="x", minimum=1, maximum=2, one_of_json=["1"] * 64)
    return runs.RunRequest(request=request)


def _decision() -> approvals.DecideApprovalRequest:
    request = approvals.DecideApprovalRequest(approval_id="x" * 70_000, digest="x", reason="x")
    request.standing.until.CopyFrom(Timestamp(seconds=1))
    for _ in range(64):
        request.standing.conditions.add(pointer="/a", pattern="x", min=1, max=2, one_of_json=["1"] * 32)
    return request


def _answer() -> hooks.InterceptRequest:
    request = hooks.InterceptRequest()
    request.answer.question_id = 1
    request.answer.change_result.reason = "x"
    request.answer.change_result.output.content.extend(_blocks(hook_messages.MAX_BLOCKS))
    return request


async def test_the_largest_requests_that_methods_take_are_within_their_bounds() -> None:
    combined = pb.SessionRequests(
        requests=[pb.SessionRequest(call=_call(), updates=True) for _ in range(MAX_COMBINED_REQUESTS)]
    )
    largest: list[tuple[Message, int]] = [
        (pb.SessionRequest(combined=combined, accepts_combined=True), MAX_MESSAGE_FIELDS),
        (pb.CallToolsRequest(calls=[_call() for _ in range(MOST_CALLS)], max_concurrent=8), MAX_BATCH_FIELDS),
        (pb.ListToolsRequest(names=["x" * 99] * tool_filter.MAX_NAMES), tool_filter.MAX_LISTING_FIELDS),
        (
            pb.ResolveCallRequest(call_id="x", content=_blocks(recorded_calls.MAX_BLOCKS), reason="x"),
            recorded_calls.MAX_RESOLUTION_FIELDS,
        ),
        (_answer(), hook_messages.MAX_FIELDS),
        (_run(), run_requests.MAX_FIELDS),
        (_decision(), standing_messages.MAX_FIELDS),
    ]
    for message, limit in largest:
        data = message.SerializeToString()
        assert len(data) > UNCOUNTED_BYTES
        assert await RequestParser(type(message), Pacer(1), max_fields=limit).parse(data) == message


async def test_requests_of_many_fields_are_counted_by_a_portion_in_each_iteration_of_the_loop() -> None:
    turns, iterations = Pacer(1), 0
    parser = RequestParser(pb.ListToolsRequest, turns, max_fields=8 * PORTION)
    many, more, few = (pb.ListToolsRequest(names=["x" * 50] * count) for count in (8 * PORTION, 8 * PORTION + 1, 1_400))
    parsing = [asyncio.ensure_future(parser.parse(each.SerializeToString())) for each in (many, more, few)]
    while not all(each.done() for each in parsing):
        await asyncio.sleep(0)
        iterations += 1
    assert iterations >= 7 + 7 + 2
    assert (parsing[0].result(), parsing[2].result()) == (many, few)
    with pytest.raises(RefusedError, match="more than the 4,096 fields"):
        parsing[1].result()


async def test_lists_in_requests_are_refused_by_their_length(sidecar: Sidecar) -> None:
    user = runs.Message(role=runs.MESSAGE_ROLE_USER, text="hi")
    many_kinds = runs.SystemRequest(messages=[user], mode=runs.MODE_PLAN)
    many_kinds.plan.policy.allowed_step_kinds.extend(["map"] * 17)
    many_values = runs.SystemRequest(messages=[user], mode=runs.MODE_STRUCTURED)
    for _ in range(64):
        many_values.output.rules.add(name="x", one_of_json=["1"] * 65)
    decision = approvals.DecideApprovalRequest(approval_id="x", choice=approvals.APPROVAL_CHOICE_APPROVE)
    for _ in range(3):
        decision.standing.conditions.add(pointer="/a", one_of_json=["1"] * 1000)
    resolution = pb.ResolveCallRequest(
        call_id="x",
        resolution=pb.RESOLUTION_EXECUTED,
        resolved_by="x",
        reason="x",
        content=[content_pb2.Content()] * 1025,
    )
    prompt = mcp.GetPromptRequest(plugin="speech", name="x", arguments=[mcp.McpPromptValue() for _ in range(65)])
    expected = {
        "McpService/GetPrompt": (prompt, "arguments has more than 64 entries"),
        "ToolService/ResolveCall": (resolution, "content has more than 1,024 blocks"),
        "ApprovalService/DecideApproval": (decision, "name more than 2,048 values together"),
        "OrchestrationService/Run": (runs.RunRequest(request=many_kinds), "has more than 16 entries"),
        "OrchestrationService/StreamRun": (runs.StreamRunRequest(request=many_values), "more than 4,096 values"),
    }
    said = {}
    async with sidecar.channel() as channel:
        for method, (request, _) in expected.items():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.stream_unary(f"/fumehood.v1.{method}")(
                    iter([request.SerializeToString()]), timeout=BOUND_S
                )
            said[method] = (reason_of(caught.value), caught.value.details() or "")
    wrong = {name: said[name] for name, (_, text) in expected.items() if text not in said[name][1]}
    assert not wrong
    assert {reason for reason, _ in said.values()} == {"REQUEST_INVALID"}
