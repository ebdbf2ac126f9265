"""Collectors that hang, refuse or are away: calls and the sidecar's end don't wait for them."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.model.call import CallContext, CallOutcome, CallRequest
from fumehood_server.telemetry import CallObserver, SidecarMetrics
from fumehood_server.telemetry.call_observer import MAX_WAITING_SPANS
from fumehood_server.telemetry.otlp import FLUSH_S
from fumehood_server.telemetry.trace_context import TraceStarter

from tests.rpc.support import BOUND_S, call
from tests.sidecar import running_sidecar
from tests.telemetry.collector import collecting, free_port


async def test_a_collector_that_never_answers_holds_up_neither_calls_nor_the_end(plugin: Path) -> None:
    with collecting(hangs=True) as collector:
        more = f'[telemetry]\notlp_endpoint = "{collector.url}"\nmetrics_interval_s = 1\n'
        with running_sidecar([plugin], more=more) as sidecar:
            async with sidecar.channel() as channel:
                tools: Any = ToolServiceStub(channel)
                await tools.CallTool(call("trace"), timeout=BOUND_S)
                assert await asyncio.to_thread(collector.asked.wait, BOUND_S)
                for _ in range(20):
                    answer = await tools.CallTool(call("trace"), timeout=BOUND_S)
                    assert not answer.result.is_error
            sidecar.signal(signal.SIGTERM)
            # Far below the 30 s that waiting for the collector would take, far above what a busy machine adds.
            assert sidecar.wait(2 * FLUSH_S + 10) == 0
            assert not any("Traceback" in line for line in sidecar.stderr().splitlines())


async def test_a_collector_that_is_away_is_logged_once(plugin: Path) -> None:
    more = f'[telemetry]\notlp_endpoint = "http://127.0.0.1:{free_port()}"\nmetrics_interval_s = 1\n'
    with running_sidecar([plugin], more=more) as sidecar:
        async with sidecar.channel() as channel, asyncio.timeout(BOUND_S):
            tools: Any = ToolServiceStub(channel)
            while not any(line["event"] == "otlp_unavailable" for line in sidecar.log()):
                assert not (await tools.CallTool(call("trace"))).result.is_error
                await asyncio.sleep(0.1)
        assert sum(line["event"] == "otlp_unavailable" for line in sidecar.log()) == 1
        assert [line for line in sidecar.log() if line["event"] == "library_log"] == []


@pytest.mark.parametrize("sampled", [True, False])
def test_spans_that_find_no_room_are_dropped_and_counted(sampled: bool) -> None:
    observer = CallObserver(SidecarMetrics())
    trace = TraceStarter(1.0 if sampled else 0.0).start("m", (), CallContext())
    request = CallRequest(
        call_id="a",
        tool="b",
        arguments_json="",
        context=CallContext(),
        timeout_s=None,
        caller_deadline=None,
        trace=trace,
    )
    for _ in range(MAX_WAITING_SPANS + 3):
        observer.call_ended(
            request, CallOutcome(call_id="a", tool="b"), plugin="p", admitted_at=time.monotonic(), worker_id=""
        )
    assert (len(observer.spans), observer.calls_dropped) == ((MAX_WAITING_SPANS, 3) if sampled else (0, 0))
