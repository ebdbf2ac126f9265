from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import structlog
from fumehood_sandbox import Level
from fumehood_server.calls import CallState, Executor
from fumehood_server.errors import RefusalReason, RefusedError
from fumehood_server.model.call import CallError, CallOutcome, CallUpdate
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import ExecutionMode, Permission, Reason
from fumehood_server.model.worker import CancelReason
from fumehood_server.telemetry import configure_logging
from fumehood_server.telemetry.logging import CORRELATION

from tests.calls.fake import FakePools, FakeTools, FakeWorker, answered, request, tool

BOUND_S = 10.0
SOON_S = 0.02
"""A timeout that a test waits for."""


async def outcome_of(executor: Executor, **more: object) -> CallOutcome:
    async with asyncio.timeout(BOUND_S):
        return await executor.call(request(**more))  # type: ignore[arg-type] # the fake's own keywords


def code_of(outcome: CallOutcome) -> Code:
    assert outcome.error is not None
    assert outcome.content[0].text, "a failure says something to a model"
    return outcome.error.code


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[[], list[dict[str, object]]]]:
    """The lines of the log so far."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    library = logging.getLogger()
    before = library.handlers[:], library.level
    flush = configure_logging("info", descriptor=descriptor)

    def lines() -> list[dict[str, object]]:
        flush()
        return [orjson.loads(line) for line in path.read_bytes().splitlines()]

    yield lines
    flush()
    structlog.reset_defaults()
    library.handlers[:] = before[0]
    library.setLevel(before[1])
    os.close(descriptor)


async def test_a_call_has_its_result_usage_and_receipt(executor: Executor, worker: FakeWorker) -> None:
    worker.answer = lambda invocation: answered(invocation.arguments_json)
    outcome = await outcome_of(executor)
    assert outcome.error is None
    assert outcome.content[0].text == '{"text":"hi"}'
    assert outcome.attempts == 1
    assert outcome.usage is not None
    assert outcome.usage.input_bytes == len('{"text":"hi"}')
    assert (outcome.usage.cpu_s, outcome.usage.peak_memory_bytes, outcome.usage.source) == (0.25, 4096, "cgroup2")
    assert outcome.receipt is worker.receipt


async def test_the_usual_call_is_dispatched_before_start_returns(executor: Executor, worker: FakeWorker) -> None:
    outcomes: list[CallOutcome] = []
    call = executor.start(request(), outcomes.append)
    assert call.state is CallState.RUNNING
    worker.handles[0].resolve(answered("done"))
    assert [each.error for each in outcomes] == [None]
    assert call.state is CallState.ENDED


async def test_an_unknown_tool_is_named_with_its_neighbour(executor: Executor) -> None:
    outcome = await outcome_of(executor, name="ecko")
    assert code_of(outcome) is Code.TOOL_NOT_FOUND
    assert outcome.error is not None
    assert '"echo"' in outcome.error.message
    assert (outcome.attempts, outcome.usage, outcome.receipt) == (0, None, None)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (tool(permission=Permission.DENY), Code.TOOL_DENIED),
        (tool(permission=Permission.REQUIRE_APPROVAL), Code.TOOL_DENIED),
        (tool(permission="maybe"), Code.TOOL_DENIED),  # type: ignore[arg-type] # what a later version may write
        (tool(runnable=False, reasons=(Reason("level_not_granted", "too much", "grant it"),)), Code.TOOL_UNAVAILABLE),
        (tool(reasons=(Reason("definition_changed", "it changed"),)), Code.TOOL_UNAVAILABLE),
    ],
)
async def test_a_tool_that_may_not_run_is_never_started(
    pools: FakePools, worker: FakeWorker, made: RegisteredTool, code: Code
) -> None:
    async with Executor(FakeTools((made,)), pools, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert code_of(outcome) is code
    assert worker.handles == []


async def test_a_denial_for_want_of_approval_says_how_it_is_allowed(pools: FakePools) -> None:
    made = tool(permission=Permission.REQUIRE_APPROVAL, level=Level.WRITE)
    async with Executor(FakeTools((made,)), pools, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert outcome.error is not None
    assert "[plugin.tools.echo]" in outcome.error.message
    assert 'permission = "allow"' in outcome.error.message


async def test_bad_arguments_never_reach_a_worker(executor: Executor, worker: FakeWorker) -> None:
    assert code_of(await outcome_of(executor, arguments_json="{")) is Code.TOOL_EXECUTION_FAILED
    assert worker.handles == []


@pytest.mark.parametrize(
    ("asked", "code", "bound"),
    [
        ({"timeout_s": SOON_S}, Code.TOOL_TIMEOUT, "request"),
        ({"caller": SOON_S}, Code.CANCELLED_TIMEOUT, "caller"),
        ({"timeout_s": 60.0, "caller": SOON_S}, Code.CANCELLED_TIMEOUT, "caller"),
        ({"timeout_s": SOON_S, "caller": 60.0}, Code.TOOL_TIMEOUT, "request"),
    ],
)
async def test_the_first_bound_ends_the_call_and_is_named(
    executor: Executor, worker: FakeWorker, asked: dict[str, float], code: Code, bound: str
) -> None:
    caller = asked.pop("caller", None)
    deadline = None if caller is None else asyncio.get_running_loop().time() + caller
    outcome = await outcome_of(executor, caller_deadline=deadline, **asked)
    assert code_of(outcome) is code
    assert outcome.error is not None
    assert outcome.error.details["bound"] == bound
    assert outcome.error.details["ended_by"] == "cancel_frame"
    assert outcome.error.retryable, "a tool of level none can be called again"
    assert worker.handles[0].cancelled == [CancelReason.DEADLINE]


async def test_the_tools_own_timeout_ends_the_call(pools: FakePools) -> None:
    async with Executor(FakeTools((tool(timeout_s=SOON_S),)), pools, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert code_of(outcome) is Code.TOOL_TIMEOUT
    assert outcome.error is not None
    assert outcome.error.details["bound"] == "tool"


async def test_a_tool_that_may_have_written_is_not_called_retryable_after_a_timeout(pools: FakePools) -> None:
    made = tool(level=Level.WRITE, timeout_s=SOON_S)
    async with Executor(FakeTools((made,)), pools, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert outcome.error is not None
    assert not outcome.error.retryable


async def test_the_deadline_travels_to_the_worker(executor: Executor, worker: FakeWorker) -> None:
    worker.answer = lambda _: answered("ok")
    await outcome_of(executor, timeout_s=5.0)
    assert 4.0 < worker.handles[0].invocation.timeout_s <= 5.0


async def test_a_call_whose_deadline_has_passed_is_not_started(executor: Executor, worker: FakeWorker) -> None:
    outcome = await outcome_of(executor, caller_deadline=asyncio.get_running_loop().time() - 1)
    assert code_of(outcome) is Code.CANCELLED_TIMEOUT
    assert worker.handles == []


async def test_a_deadline_ends_the_wait_for_a_worker(executor: Executor, pools: FakePools) -> None:
    pools.cold = True
    outcome = await outcome_of(executor, timeout_s=SOON_S)
    assert code_of(outcome) is Code.TOOL_TIMEOUT
    assert outcome.attempts == 0


async def test_a_call_waits_for_a_worker_and_then_runs(
    executor: Executor, pools: FakePools, worker: FakeWorker
) -> None:
    pools.cold = True
    worker.answer = lambda _: answered("ok")
    waiting = asyncio.create_task(outcome_of(executor))
    await asyncio.sleep(0)
    assert worker.handles == []
    pools.warm.set()
    assert (await waiting).error is None


async def test_a_worker_that_can_not_be_had_is_the_calls_error(executor: Executor, pools: FakePools) -> None:
    pools.cold, pools.error = True, CallError(code=Code.TOOL_UNAVAILABLE, message="it will not start", retryable=True)
    outcome = await outcome_of(executor)
    assert outcome.error is pools.error


async def test_cancelling_ends_the_call_once_its_worker_has_let_go(executor: Executor, worker: FakeWorker) -> None:
    outcomes: list[CallOutcome] = []
    worker.ignores_cancel = True
    call = executor.start(request(), outcomes.append)
    assert executor.cancel("c1", "no longer wanted")
    assert (call.state, outcomes) == (CallState.ENDING, [])
    assert executor.cancel("c1"), "it is still under way"
    worker.handles[0].resolve(answered("too late"))
    assert [code_of(each) for each in outcomes] == [Code.CANCELLED_SIGNAL]
    assert outcomes[0].error is not None
    assert outcomes[0].error.details["note"] == "no longer wanted"
    assert not executor.cancel("c1")


async def test_a_result_that_has_come_wins_over_a_cancellation(executor: Executor, worker: FakeWorker) -> None:
    outcomes: list[CallOutcome] = []
    executor.start(request(), outcomes.append)
    worker.handles[0].resolve(answered("done"))
    executor.cancel("c1")
    assert [each.error for each in outcomes] == [None]


async def test_a_caller_that_goes_away_cancels_its_call_and_it_is_logged_once(
    worker: FakeWorker, pools: FakePools, log: Callable[[], list[dict[str, object]]]
) -> None:
    async with Executor(FakeTools((tool(),)), pools, max_concurrent_calls=1) as own:
        calling = asyncio.create_task(own.call(request()))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await own.idle()
        await asyncio.sleep(0)
        assert worker.handles[0].cancelled == [CancelReason.CALLER]
    (line,) = log()
    assert (line["event"], line["code"], line["call_id"]) == ("execute_cancelled", "CANCELLED_SIGNAL", "c1")


async def test_every_line_about_a_call_carries_the_whole_correlation(
    worker: FakeWorker, pools: FakePools, log: Callable[[], list[dict[str, object]]]
) -> None:
    worker.answer = lambda _: answered("ok")
    async with Executor(FakeTools((tool(),)), pools, max_concurrent_calls=1) as executor:
        await outcome_of(executor)
        await asyncio.sleep(0)
    (line,) = log()
    assert {*CORRELATION, "call_id", "tool", "plugin", "worker_id"} <= line.keys()
    assert (line["request_id"], line["worker_id"], line["plugin"], line["code"]) == ("r1", "fake-1", "fake", "OK")


async def test_an_id_is_in_use_until_its_call_has_ended(executor: Executor, worker: FakeWorker) -> None:
    executor.start(request(), lambda _: None)
    with pytest.raises(RefusedError) as refused:
        executor.start(request(), lambda _: None)
    assert refused.value.refusal.reason is RefusalReason.CALL_ID_IN_USE
    worker.handles[0].resolve(answered())
    worker.answer = lambda _: answered("again")
    assert (await outcome_of(executor)).error is None


async def test_calls_over_the_cap_are_refused(executor: Executor, worker: FakeWorker) -> None:
    for index in range(4):
        executor.start(request(call_id=f"c{index}"), lambda _: None)
    with pytest.raises(RefusedError) as refused:
        executor.start(request(call_id="one-more"), lambda _: None)
    assert refused.value.refusal.reason is RefusalReason.TOO_MANY_CALLS
    for handle in worker.handles:
        handle.resolve(answered())


async def test_a_drain_refuses_new_calls_and_cancels_the_rest(executor: Executor, worker: FakeWorker) -> None:
    outcomes: list[CallOutcome] = []
    executor.start(request(), outcomes.append)
    executor.close_admission()
    with pytest.raises(RefusedError) as refused:
        executor.start(request(call_id="late"), lambda _: None)
    assert refused.value.refusal.reason is RefusalReason.DRAINING
    executor.cancel_all(CancelReason.SHUTDOWN)
    assert [code_of(each) for each in outcomes] == [Code.CANCELLED_SIGNAL]
    assert worker.handles[0].cancelled == [CancelReason.SHUTDOWN]


async def test_leaving_the_executor_ends_calls_that_wait(pools: FakePools) -> None:
    pools.cold = True
    outcomes: list[CallOutcome] = []
    async with Executor(FakeTools((tool(),)), pools, max_concurrent_calls=1) as executor:
        executor.start(request(), outcomes.append)
    assert [code_of(each) for each in outcomes] == [Code.CANCELLED_SIGNAL]


async def test_updates_come_in_order_and_stop_with_the_call(executor: Executor, worker: FakeWorker) -> None:
    updates: list[CallUpdate] = []
    executor.start(request(), lambda _: None, updates.append)
    handle = worker.handles[0]
    handle.update("one", 1)
    handle.update("two", 2)
    handle.resolve(answered())
    handle.update("ghost", 3)
    assert [each.message for each in updates] == ["one", "two"]


async def test_a_sequential_tool_runs_one_call_at_a_time_in_order(pools: FakePools, worker: FakeWorker) -> None:
    made = tool(mode=ExecutionMode.SEQUENTIAL)
    async with Executor(FakeTools((made, tool("other"))), pools, max_concurrent_calls=9) as executor:
        ended: list[str] = []
        for index in range(3):
            executor.start(request(call_id=f"c{index}"), lambda each: ended.append(each.call_id))
        executor.start(request(name="other", call_id="free"), lambda each: ended.append(each.call_id))
        await asyncio.sleep(0)
        assert [each.invocation.call_id for each in worker.handles] == ["c0", "free"]
        executor.cancel("c1")
        worker.handles[0].resolve(answered())
        async with asyncio.timeout(BOUND_S):
            await worker.invoked(3)
        worker.handles[2].resolve(answered())
        worker.handles[1].resolve(answered())
        assert ended == ["c1", "c0", "c2", "free"]
    assert pools.leases == 0


async def test_a_fault_of_ours_is_an_outcome_too(pools: FakePools) -> None:
    class Broken(FakeTools):
        def find(self, name: str) -> RegisteredTool | None:
            raise ValueError(name)

    async with Executor(Broken(()), pools, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert outcome.error is not None
    assert outcome.error.details == {"reason": "internal_error"}
    assert executor.calls_in_flight == 0


async def test_an_answer_that_can_not_be_given_does_not_reach_the_worker(
    executor: Executor, worker: FakeWorker
) -> None:
    def refuse(outcome: CallOutcome) -> None:
        raise ValueError(outcome.call_id)

    executor.start(request(), refuse)
    worker.handles[0].resolve(answered())
    assert executor.calls_in_flight == 0
