"""Batches: order, how many run at a time, what ends whom, and readers that stop."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, call, metadata_of, reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = '''
import asyncio
import time
from fumehood_sdk import Content, Context, Plugin

plugin = Plugin("steps", version="1.0.0")


async def _step(seconds: float, terminate: bool) -> Content[list[float]]:
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return Content("done", details=[began, time.monotonic()], terminate=terminate)


@plugin.tool(side_effects="none", isolation="process")
async def step(seconds: float = 0.0, terminate: bool = False) -> Content[list[float]]:
    """Takes its time."""
    return await _step(seconds, terminate)


@plugin.tool(side_effects="none", isolation="process", sequential=True)
async def alone(seconds: float = 0.0, terminate: bool = False) -> Content[list[float]]:
    """Takes its time, alone."""
    return await _step(seconds, terminate)


@plugin.tool(side_effects="none", isolation="process")
def shout(size: int) -> str:
    """Says much."""
    return "x" * size


@plugin.tool(side_effects="none", isolation="process")
def fail() -> str:
    """Fails."""
    raise ValueError("it broke")
'''


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = write_plugin(tmp_path_factory.mktemp("steps"), "steps", CODE)
    with running_sidecar([folder], more="[batch]\nmax_calls = 40\nmax_concurrent = 16\n") as sidecar:
        yield sidecar


@pytest.fixture
async def tools(sidecar: Sidecar) -> AsyncIterator[Any]:
    async with sidecar.channel() as channel:
        yield ToolServiceStub(channel)


async def run(tools: Any, calls: list[pb.CallToolRequest], **more: Any) -> tuple[list[pb.BatchAnswer], bool]:
    """The answers of a batch, whose order and end are checked, and whether it may stop there."""
    stream = tools.CallTools(pb.CallToolsRequest(calls=calls, **more), timeout=BOUND_S)
    events = [event async for event in stream]
    assert [event.HasField("finished") for event in events] == [*[False] * (len(events) - 1), True]
    answers = [answer for event in events for answer in event.answers]
    assert [each.index for each in answers] == [*range(len(calls))]
    return answers, events[-1].finished.terminate


def most_at_a_time(answers: list[pb.BatchAnswer]) -> int:
    spans = [json.loads(each.result.details_json) for each in answers]
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)


async def test_results_come_in_the_order_of_the_request_and_a_failure_leaves_the_others_as_they_are(tools: Any) -> None:
    calls = [call("step", {"seconds": 0.3}), call("fail"), call("absent"), call("step", {"x": 1}), call("step")]
    answers, terminate = await run(
        tools, [*calls, call("step", call_id="same"), call("step", {"seconds": 1}, call_id="same")]
    )
    codes = [each.result.error.code for each in answers[:-1]]
    assert codes == ["", "TOOL_EXECUTION_FAILED", "TOOL_NOT_FOUND", "TOOL_EXECUTION_FAILED", "", ""]
    assert answers[-1].refused.error.code == "CALL_ID_IN_USE"
    assert answers[-1].refused.call_id == "same"
    assert not terminate


async def test_as_many_run_at_a_time_as_are_allowed(tools: Any) -> None:
    most = {}
    for wanted, seconds in ((0, 0.1), (2, 0.1), (999, 1.0)):  # long enough for many to begin before the first ends
        calls = [call("step", {"seconds": seconds}) for _ in range(20)]
        most[wanted] = most_at_a_time((await run(tools, calls, max_concurrent=wanted))[0])
    assert most[0] <= 8
    assert most[2] <= 2
    assert 8 < most[999] <= 16


async def test_one_sequential_tool_has_its_batch_run_one_after_the_other_in_order(tools: Any) -> None:
    calls = [call("alone" if index == 3 else "step", {"seconds": 0.02 * (6 - index)}) for index in range(6)]
    answers, _ = await run(tools, calls)
    spans = [json.loads(each.result.details_json) for each in answers]
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    answers, _ = await run(tools, [call("step", {"seconds": 0.2}) for _ in range(6)])
    assert most_at_a_time(answers) > 1


async def test_a_batch_terminates_only_where_every_result_asks_for_it(tools: Any) -> None:
    stop, go = call("step", {"terminate": True}), call("step")
    assert [
        (await run(tools, calls))[1] for calls in ([stop], [stop, stop], [stop, go], [go], [stop, call("fail")])
    ] == [*(True, True, False, False, False)]


async def test_a_batch_that_is_wrong_is_refused_before_anything_runs(tools: Any) -> None:
    async def refused(*calls: pb.CallToolRequest) -> tuple[grpc.StatusCode, str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await run(tools, [*calls])
        metadata_of(caught.value)
        return caught.value.code(), reason_of(caught.value), str(caught.value.details())

    invalid = (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
    assert (await refused())[:2] == invalid
    code, reason, text = await refused(*[call("step")] * 41)
    assert (code, reason) == invalid
    assert "1 to 40" in text
    code, reason, text = await refused(call("step", call_id="not-run"), call(""))
    assert (code, reason) == invalid
    assert text.startswith("calls[1]: ")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await tools.GetCall(pb.GetCallRequest(call_id="not-run"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert len((await run(tools, [call("step")] * 40))[0]) == 40


async def gone(tools: Any, call_ids: list[str]) -> list[str]:
    """The codes that these calls ended with. One that never began has none."""
    found = []
    for call_id in call_ids:
        try:
            told = await tools.GetCall(pb.GetCallRequest(call_id=call_id, wait=True), timeout=BOUND_S)
        except grpc.aio.AioRpcError as exc:
            assert exc.code() is grpc.StatusCode.NOT_FOUND  # noqa: PT017 - beside those that are found
        else:
            found.append(told.result.error.code)
    return found


async def test_leaving_a_batch_and_its_deadline_cancel_its_calls_and_those_that_wait_never_begin(tools: Any) -> None:
    def batch(name: str) -> Any:
        calls = [call("step", {"seconds": 0 if index == 0 else 60}, call_id=f"{name}-{index}") for index in range(12)]
        return pb.CallToolsRequest(calls=calls)

    stream = tools.CallTools(batch("left"))
    await stream.read()
    stream.cancel()
    late = tools.CallTools(batch("late"), timeout=3.0)  # in which its first call begins and ends
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [each async for each in late]
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    for name, code in (("left", "CANCELLED_SIGNAL"), ("late", "CANCELLED_TIMEOUT")):
        codes = await gone(tools, [f"{name}-{index}" for index in range(12)])
        assert codes == ["", *[code] * (len(codes) - 1)]
        assert 8 <= len(codes) <= 9


async def test_batches_whose_calls_are_cancelled_at_random_have_one_answer_for_each(tools: Any) -> None:
    chance = random.Random(7)  # noqa: S311 - which to cancel

    async def one(name: str) -> list[str]:
        ids = [f"{name}-{index}" for index in range(8)]
        calls = [call("step", {"seconds": 0.3 if index % 2 else 0.0}, call_id=each) for index, each in enumerate(ids)]
        batch = asyncio.create_task(run(tools, calls))
        for victim in chance.sample(ids, 4):
            try:
                await tools.CancelCall(pb.CancelCallRequest(call_id=victim))
            except grpc.aio.AioRpcError as exc:
                assert exc.code() is grpc.StatusCode.NOT_FOUND  # noqa: PT017 - or it is under way
        answers, _ = await batch
        return [each.result.error.code for each in answers]

    codes = await asyncio.gather(*(one(f"random{index}") for index in range(6)))
    assert {code for each in codes for code in each} == {"", "CANCELLED_SIGNAL"}


async def test_a_reader_that_stops_holds_back_the_rest_of_its_batch_and_nobody_else(
    sidecar: Sidecar, tools: Any
) -> None:
    size = 450_000
    calls = [call("shout", {"size": size}, call_id=f"shout-{index}") for index in range(40)]
    async with sidecar.channel() as channel:
        stream: Any = aiter(ToolServiceStub(channel).CallTools(pb.CallToolsRequest(calls=calls)))
        assert [each.index for each in (await anext(stream)).answers] == [0]
        await tools.GetCall(pb.GetCallRequest(call_id="shout-4", wait=True), timeout=BOUND_S)
        assert not (await tools.CallTool(call("step"), timeout=BOUND_S)).result.is_error
        begun = await gone(tools, [each.call_id for each in calls])
        assert len(begun) < 30, "it has not read them"
        rest = [answer.index async for event in stream for answer in event.answers]
        assert rest == [*range(1, 40)]
