"""Traces, from the caller's metadata through sidecar and plugin to a collector."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.rpc.support import BOUND_S, call
from tests.telemetry.conftest import Told

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def attributes(span: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes if each.value.string_value}


async def spans(client: Told, trace_id: str, count: int = 3) -> dict[str, Any]:
    return await asyncio.to_thread(client.collector.spans_of, trace_id, count)


async def test_a_call_is_a_child_of_its_callers_span_and_the_plugin_is_told_its_attempt(client: Told) -> None:
    metadata = (("traceparent", f"00-{TRACE}-{SPAN}-01"), ("tracestate", "vendor=1"))
    answer = await client.tools.CallTool(call("trace", call_id="traced"), metadata=metadata, timeout=BOUND_S)
    seen = json.loads(answer.result.details_json)
    found = await spans(client, TRACE)
    server, wait, attempt = (found[name] for name in ("fumehood.v1.ToolService/CallTool", "wait", "execute_tool trace"))
    assert (server.parent_span_id.hex(), server.kind, server.trace_state) == (SPAN, 2, "vendor=1")
    assert {wait.parent_span_id, attempt.parent_span_id} == {server.span_id}
    assert seen == {
        "trace_id": TRACE,
        "span_id": attempt.span_id.hex(),
        "parent": server.span_id.hex(),
        "traceparent": f"00-{TRACE}-{attempt.span_id.hex()}-01",
        "tracestate": "vendor=1",
    }
    assert server.start_time_unix_nano <= wait.start_time_unix_nano <= wait.end_time_unix_nano
    assert wait.end_time_unix_nano == attempt.start_time_unix_nano <= server.end_time_unix_nano
    assert attributes(server) == {
        "rpc.system.name": "grpc",
        "rpc.method": "fumehood.v1.ToolService/CallTool",
        "gen_ai.tool.name": "trace",
        "gen_ai.tool.call.id": "traced",
    }
    told = attributes(attempt)
    assert (told["gen_ai.operation.name"], told["fumehood.plugin"]) == ("execute_tool", "told")
    assert client.collector.resource["service.name"] == "fumehood"
    line = client.sidecar.logged(call_id="traced")
    assert (line["trace_id"], line["span_id"]) == (TRACE, server.span_id.hex())


async def test_a_failed_call_is_an_error_without_its_words(client: Told) -> None:
    trace = "1" * 32
    context = tool_pb2.CallContext(trace_id=trace, span_id=SPAN)
    await client.tools.CallTool(call("fail", context=context), timeout=BOUND_S)
    found = await spans(client, trace)
    attempt = found["execute_tool fail"]
    assert (attempt.status.code, attributes(attempt)["error.type"]) == (2, "TOOL_EXECUTION_FAILED")
    assert b"no" not in [each.value.string_value for each in attempt.attributes]
    assert attempt.status.message == ""


async def test_each_call_of_a_session_has_the_parent_that_it_names_else_the_streams(client: Told) -> None:
    one, stream = "2" * 32, "3" * 32
    metadata = (("traceparent", f"00-{stream}-{SPAN}-01"),)
    session = client.tools.Session(metadata=metadata, timeout=BOUND_S)
    for request in (
        call("trace", context=tool_pb2.CallContext(trace_id=one, span_id="4" * 16)),
        call("trace", context=tool_pb2.CallContext(trace_id="not W3C's")),
    ):
        await session.write(pb.SessionRequest(call=request))
        await session.read()
    await session.done_writing()
    for trace, parent in ((one, "4" * 16), (stream, SPAN)):
        found = await spans(client, trace)
        assert found["fumehood.v1.ToolService/Session"].parent_span_id.hex() == parent


async def test_what_the_caller_does_not_sample_is_not_exported_and_malformed_context_begins_a_trace(
    client: Told,
) -> None:
    silent = "5" * 32
    metadata = (("traceparent", f"00-{silent}-{SPAN}-00"), ("tracestate", "quiet=1"))
    told = await client.tools.CallTool(call("trace"), metadata=metadata, timeout=BOUND_S)
    seen = json.loads(told.result.details_json)
    assert (seen["traceparent"][:36], seen["traceparent"][-3:]) == (f"00-{silent}-", "-00")
    assert seen["tracestate"] == "quiet=1"
    before = len(client.told.requests)
    await client.tools.CallTool(call("ask", {"url": f"{client.told.url}/hello"}), metadata=metadata, timeout=BOUND_S)
    ((_, _, handed_on, _),) = client.told.requests[before:]
    assert (handed_on["traceparent"][:36], handed_on["traceparent"][-3:]) == (f"00-{silent}-", "-00")
    assert handed_on["tracestate"] == "quiet=1"
    new = []
    for parent in (f"00-{'0' * 32}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01", "x" * 900, f"00-{TRACE}-{SPAN}-01-more"):
        answer = await client.tools.CallTool(call("trace"), metadata=(("traceparent", parent),), timeout=BOUND_S)
        new.append(json.loads(answer.result.details_json)["trace_id"])
    assert len({*new, TRACE}) == 5
    for trace in new:
        await spans(client, trace)
    assert silent not in {span.trace_id.hex() for span in client.collector.spans}


async def test_a_host_that_the_operator_names_is_told_the_trace_and_no_other(client: Told) -> None:
    trace = "6" * 32
    for web in (client.told, client.untold):
        await client.tools.CallTool(
            call("ask", {"url": f"{web.url}/hello"}),
            metadata=(("traceparent", f"00-{trace}-{SPAN}-01"), ("tracestate", "a=b")),
            timeout=BOUND_S,
        )
    found = await spans(client, trace, 5)
    _, _, told, _ = client.told.requests[-1]
    ((_, _, untold, _),) = client.untold.requests
    assert told["traceparent"].startswith(f"00-{trace}-")
    attempts = {span.span_id.hex() for span in client.collector.spans if span.name == "execute_tool ask"}
    assert found
    assert told["traceparent"].split("-")[2] in attempts
    assert (told["tracestate"], untold["traceparent"]) == ("a=b", "the plugin's own")
    assert "tracestate" not in untold
