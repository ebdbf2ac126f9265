"""Runs of models in traces and metrics, by OpenTelemetry's conventions for GenAI."""

from __future__ import annotations

import asyncio
from typing import Any

from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1.orchestration_service_pb2_grpc import OrchestrationServiceStub

from tests.orchestration.scripted import MODEL, ScriptedModel
from tests.rpc.support import BOUND_S
from tests.telemetry.conftest import Told

SPAN = "b7ad6b7169203331"
SAID = "what nobody else hears"
CHAT = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "openai", "gen_ai_request_model": MODEL}


def attributes(span: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


async def run(client: Told, trace: str, *, sampled: bool = True, **fields: Any) -> pb.SystemResponse:
    request = pb.SystemRequest(messages=[pb.Message(role=pb.MESSAGE_ROLE_USER, text=SAID)], **fields)
    stub: Any = OrchestrationServiceStub(client.channel)
    metadata = (("traceparent", f"00-{trace}-{SPAN}-{'01' if sampled else '00'}"),)
    answer = await stub.Run(pb.RunRequest(request=request), metadata=metadata, timeout=BOUND_S)
    return answer.response


async def test_a_runs_inferences_and_calls_are_within_its_span(client: Told, scripted_model: ScriptedModel) -> None:
    scripted_model.calls(("trace", {}), usage=(100, 20))
    scripted_model.says("Done.", usage=(150, 5))
    trace = "7" * 32
    response = await run(client, trace, session_id="talk", request_id="traced-run")
    assert response.state == "COMPLETE"
    await asyncio.to_thread(client.collector.spans_of, trace, 6)
    spans = [each for each in client.collector.spans if each.trace_id.hex() == trace]
    (whole,) = [each for each in spans if each.name == "invoke_agent chat"]
    chats = sorted((each for each in spans if each.name == f"chat {MODEL}"), key=lambda each: each.start_time_unix_nano)
    (call,) = [each for each in spans if each.name == "call trace"]
    (attempt,) = [each for each in spans if each.name == "execute_tool trace"]
    assert (whole.parent_span_id.hex(), whole.kind) == (SPAN, 2)
    assert attributes(whole) == {
        "rpc.system.name": "grpc",
        "rpc.method": "fumehood.v1.OrchestrationService/Run",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "talk",
        "fumehood.request_id": "traced-run",
        "fumehood.mode": "chat",
    }
    assert [each.parent_span_id for each in (*chats, call)] == [whole.span_id] * 3
    assert attempt.parent_span_id == call.span_id
    assert [each.kind for each in chats] == [3, 3]
    first = attributes(chats[0])
    assert first.pop("gen_ai.response.model")
    assert first == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.finish_reasons": ["tool"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.conversation.id": "talk",
    }
    assert SAID not in str(spans)
    begin, end = whole.start_time_unix_nano, whole.end_time_unix_nano
    assert all(begin <= each.start_time_unix_nano <= each.end_time_unix_nano <= end for each in (*chats, call))


async def test_what_fails_is_an_error_of_its_span_and_what_is_not_sampled_is_not_sent(
    client: Told, scripted_model: ScriptedModel
) -> None:
    scripted_model.fails(401)
    scripted_model.says("Quiet.")
    failed, quiet = "8" * 32, "9" * 32
    assert (await run(client, failed)).state == "FAILED"
    assert (await run(client, quiet, sampled=False)).state == "COMPLETE"
    found = await asyncio.to_thread(client.collector.spans_of, failed, 2)
    for name in (f"chat {MODEL}", "invoke_agent chat"):
        assert found[name].status.code == 2
        assert attributes(found[name])["error.type"] == "INFERENCE_MODEL_UNAVAILABLE"
    assert quiet not in {each.trace_id.hex() for each in client.collector.spans}


async def test_answers_and_runs_are_counted(client: Told, scripted_model: ScriptedModel) -> None:
    before = await asyncio.to_thread(client.scrape)
    scripted_model.says("Yes.", usage=(100, 20))
    scripted_model.fails(401)
    for trace in ("a" * 32, "b" * 32):
        await run(client, trace)
    after = await asyncio.to_thread(client.scrape)

    def more(name: str, **values: str) -> float:
        key = (name, tuple(sorted(values.items())))
        return after.get(key, 0) - before.get(key, 0)

    assert more("gen_ai_client_operation_duration_seconds_count", error_type="", **CHAT) == 1
    failed = {"error_type": "INFERENCE_MODEL_UNAVAILABLE", **CHAT}
    assert more("gen_ai_client_operation_duration_seconds_count", **failed) == 1
    for kind, tokens, bound in (("input", 100, "256.0"), ("output", 20, "64.0")):
        of_kind = {"gen_ai_token_type": kind, **CHAT}
        assert more("gen_ai_client_token_usage_sum", **of_kind) == tokens
        assert more("gen_ai_client_token_usage_bucket", le=bound, **of_kind) == 1
    assert more("fumehood_runs_total", fumehood_mode="chat", fumehood_code="OK") == 1
    assert more("fumehood_runs_total", fumehood_mode="chat", fumehood_code=failed["error_type"]) == 1
