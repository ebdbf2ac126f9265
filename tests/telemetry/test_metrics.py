"""Metrics: what a scrape and a collector are told of calls, requests and the sidecar."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import grpc
from fumehood.v1 import orchestration_service_pb2 as orchestration_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.orchestration_service_pb2_grpc import OrchestrationServiceStub
from fumehood_server.telemetry.instruments import MAX_SERIES, OTHER, Counter, Distribution, Histogram
from fumehood_server.telemetry.scrape_server import MAX_SCRAPES

from tests.orchestration.scripted import ScriptedModel
from tests.rpc.support import BOUND_S, call
from tests.telemetry.conftest import Told

DASHBOARD = Path(__file__).parents[2] / "docs" / "deploy" / "grafana.json"


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


async def made_calls(client: Told) -> None:
    await client.call("trace")
    await client.call("fail")
    for name in ("invented", "invented_too"):
        await client.call(name)
    try:
        await client.tools.CallTool(pb.CallToolRequest(), timeout=BOUND_S)
    except grpc.aio.AioRpcError:
        return
    raise AssertionError("a request without a tool is refused")


async def test_calls_are_counted_by_tool_and_code_and_invented_names_together(client: Told) -> None:
    before = await asyncio.to_thread(client.scrape)
    await made_calls(client)
    after = await asyncio.to_thread(client.scrape)

    def more(name: str, **values: str) -> float:
        key = (name, labels(**values))
        return after.get(key, 0) - before.get(key, 0)

    assert more("fumehood_calls_total", gen_ai_tool_name="trace", fumehood_code="OK") == 1
    assert more("fumehood_calls_total", gen_ai_tool_name="fail", fumehood_code="TOOL_EXECUTION_FAILED") == 1
    assert more("fumehood_calls_total", gen_ai_tool_name=OTHER, fumehood_code="TOOL_NOT_FOUND") == 2
    assert not [key for key in after if "invented" in str(key)]
    ran = {"gen_ai_operation_name": "execute_tool", "gen_ai_tool_name": "trace", "error_type": ""}
    assert more("gen_ai_execute_tool_duration_seconds_count", **ran) == 1
    assert more("gen_ai_execute_tool_duration_seconds_bucket", le="+Inf", **ran) == 1
    assert more("fumehood_call_wait_duration_seconds_count", gen_ai_tool_name="fail") == 1
    rpc = {"rpc_system_name": "grpc", "rpc_method": "fumehood.v1.ToolService/CallTool"}
    count = "rpc_server_call_duration_seconds_count"
    assert more(count, rpc_response_status_code="OK", **rpc) == 4
    assert more(count, rpc_response_status_code="INVALID_ARGUMENT", **rpc) == 1
    assert more("fumehood_refusals_total", fumehood_reason="REQUEST_INVALID") == 1
    assert after["fumehood_worker_starts_total", labels(fumehood_plugin="told", fumehood_kind="call")] >= 1
    assert after["fumehood_workers", labels(fumehood_plugin="told", fumehood_state="ready")] >= 1
    assert after["fumehood_journal_writable", ()] == 1
    assert after["fumehood_calls_in_flight", ()] == 0
    assert {
        ("fumehood_journal_queue", ()),
        ("fumehood_journal_events_lost_total", ()),
        ("fumehood_log_lines_dropped_total", ()),
        ("fumehood_plugin_log_lines_dropped_total", labels(fumehood_plugin="told")),
        ("fumehood_event_loop_longest_step_duration_seconds", ()),
        ("fumehood_event_loop_held_up_total", labels(fumehood_above="20ms")),
    } <= set(after)


async def test_the_collector_is_told_the_same(client: Told) -> None:
    await made_calls(client)
    metric = await asyncio.to_thread(client.collector.metric, "gen_ai.execute_tool.duration")
    assert (metric.unit, metric.histogram.aggregation_temporality) == ("s", 2)
    point = metric.histogram.data_points[0]
    assert (sum(point.bucket_counts), len(point.bucket_counts)) == (point.count, len(point.explicit_bounds) + 1)
    assert not point.HasField("min")
    calls = await asyncio.to_thread(client.collector.metric, "fumehood.calls")
    assert calls.sum.is_monotonic


async def test_refusals_within_a_session_are_counted(client: Told) -> None:
    before = await asyncio.to_thread(client.scrape)
    session = client.tools.Session(timeout=BOUND_S)
    await session.write(pb.SessionRequest(call=call("")))
    await session.read()
    await session.done_writing()
    after = await asyncio.to_thread(client.scrape)
    key = ("fumehood_refusals_total", labels(fumehood_reason="REQUEST_INVALID"))
    assert after[key] - before.get(key, 0) == 1


async def test_only_metrics_are_served_and_idle_connections_don_t_keep_scrapers_out(client: Told) -> None:
    for request, status in (
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"x" * 20_000, b"400"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
    ):
        with socket.create_connection(("127.0.0.1", client.port), timeout=BOUND_S) as connection:
            connection.sendall(request)
            assert connection.recv(100).split()[1] == status
    idle = [socket.create_connection(("127.0.0.1", client.port), timeout=BOUND_S) for _ in range(MAX_SCRAPES)]
    assert [await asyncio.to_thread(each.recv, 1) for each in idle] == [b""] * MAX_SCRAPES
    for each in idle:
        each.close()
    assert await asyncio.to_thread(client.scrape)


async def test_every_query_of_the_dashboard_asks_for_what_a_scrape_has(
    client: Told, scripted_model: ScriptedModel
) -> None:
    await made_calls(client)
    scripted_model.says("Yes.")
    request = orchestration_pb.SystemRequest(
        messages=[orchestration_pb.Message(role=orchestration_pb.MESSAGE_ROLE_USER, text="?")]
    )
    runs: Any = OrchestrationServiceStub(client.channel)
    await runs.Run(orchestration_pb.RunRequest(request=request), timeout=BOUND_S)
    there: dict[str, set[str]] = {}
    for name, pairs in await asyncio.to_thread(client.scrape):
        there.setdefault(name, set()).update(label for label, _ in pairs)
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    for query in [target["expr"] for panel in panels for target in panel["targets"]]:
        (name,) = re.findall(r"\b(\w+)\{", query)
        assert name in there, query
        by = [label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")]
        assert set(by) <= there[name], query


def test_points_beyond_the_bound_are_counted_together() -> None:
    counter, histogram = Counter("a", "1", "", "b"), Histogram("c", "", "d")
    for number in range(MAX_SERIES + 10):
        counter.add(str(number))
        histogram.record(0.003, str(number))
    points, distributions = counter.family().points, histogram.family().points
    assert (len(points), points[(OTHER,)]) == (MAX_SERIES + 1, 10)
    together = distributions[(OTHER,)]
    assert isinstance(together, Distribution)
    assert (len(distributions), together.count, together.buckets[2]) == (MAX_SERIES + 1, 10, 10)
