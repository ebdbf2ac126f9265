from __future__ import annotations

import asyncio

import pytest
from fumehood_sandbox import Level
from fumehood_server.calls import Executor
from fumehood_server.errors import RefusalReason, RefusedError
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.model.call import CallContext, CallError, CallUpdate
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import ExecutionMode, Permission, Reason
from fumehood_server.model.worker import CancelReason

from tests.calls.fake import (
    FakePools,
    FakeTools,
    FakeWorker,
    Log,
    answered,
    code_of,
    ended,
    listen,
    outcome_of,
    request,
    tool,
)


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
    async with Executor(FakeTools((made,)), pools, journal=NO_JOURNAL, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert code_of(outcome) is code
    assert worker.attempts == []


async def test_a_denial_for_want_of_approval_says_how_it_is_allowed(pools: FakePools) -> None:
    made = tool(permission=Permission.REQUIRE_APPROVAL, level=Level.WRITE)
    async with Executor(FakeTools((made,)), pools, journal=NO_JOURNAL, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert outcome.error is not None
    assert "[plugin.tools.echo]" in outcome.error.message
    assert 'permission = "allow"' in outcome.error.message


async def test_bad_arguments_never_reach_a_worker(executor: Executor, worker: FakeWorker) -> None:
    assert code_of(await outcome_of(executor, arguments_json="{")) is Code.TOOL_EXECUTION_FAILED
    assert worker.attempts == []


async def test_a_call_waits_for_a_worker_and_then_runs(
    executor: Executor, pools: FakePools, worker: FakeWorker
) -> None:
    pools.cold = True
    worker.answer = lambda _: answered("ok")
    waiting = asyncio.create_task(outcome_of(executor))
    await asyncio.sleep(0)
    assert worker.attempts == []
    pools.warm.set()
    assert (await waiting).error is None


async def test_a_worker_that_can_not_be_had_is_the_calls_error(executor: Executor, pools: FakePools) -> None:
    pools.cold, pools.error = True, CallError(code=Code.TOOL_UNAVAILABLE, message="it will not start", retryable=True)
    outcome = await outcome_of(executor)
    assert outcome.error is pools.error


async def test_every_line_about_a_call_carries_the_whole_correlation(
    worker: FakeWorker, pools: FakePools, log: Log
) -> None:
    worker.answer = lambda _: answered("ok")
    async with Executor(FakeTools((tool(),)), pools, journal=NO_JOURNAL, max_concurrent_calls=1) as executor:
        await outcome_of(executor)
        await asyncio.sleep(0)
    (line,) = log()
    assert {*CallContext.__dataclass_fields__, "call_id", "tool", "plugin", "worker_id"} <= line.keys()
    assert (line["request_id"], line["worker_id"], line["plugin"], line["code"]) == ("r1", "fake-1", "fake", "OK")


async def test_a_fault_of_ours_is_an_outcome_too(pools: FakePools) -> None:
    class Broken(FakeTools):
        def find(self, name: str) -> RegisteredTool | None:
            raise ValueError(name)

    async with Executor(Broken(()), pools, journal=NO_JOURNAL, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert outcome.error is not None
    assert outcome.error.details == {"reason": "internal_error"}
    assert executor.calls_in_flight == 0


async def test_an_id_is_in_use_until_its_call_has_ended(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    with pytest.raises(RefusedError) as refused:
        executor.start(request())
    assert refused.value.refusal.reason is RefusalReason.CALL_ID_IN_USE
    await worker.invoked(1)
    worker.attempts[0].resolve(answered())
    assert (await ended(call)).error is None
    worker.answer = lambda _: answered("again")
    assert (await outcome_of(executor)).error is None


async def test_calls_over_the_cap_are_refused(executor: Executor, worker: FakeWorker) -> None:
    for index in range(4):
        executor.start(request(call_id=f"c{index}", caller="unix:" if index else "ipv4:127.0.0.1:1"))
    with pytest.raises(RefusedError) as refused:
        executor.start(request(call_id="one-more"))
    assert refused.value.refusal.reason is RefusalReason.TOO_MANY_CALLS
    await worker.invoked(4)
    for attempt in worker.attempts:
        attempt.resolve(answered())
    await executor.idle()
    worker.answer = lambda _: answered()
    assert (await outcome_of(executor, call_id="one-more")).error is None


async def test_updates_come_in_order_and_stop_with_the_call(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    updates = listen(call)
    await worker.invoked(1)
    attempt = worker.attempts[0]
    attempt.update("one", 1)
    attempt.update("two", 2)
    attempt.resolve(answered())
    await ended(call)
    attempt.update("ghost", 3)
    assert [each.message for each in updates if isinstance(each, CallUpdate)] == ["one", "two"]


async def test_a_sequential_tool_runs_one_call_at_a_time_in_order(pools: FakePools, worker: FakeWorker) -> None:
    made = tool(mode=ExecutionMode.SEQUENTIAL)
    async with Executor(
        FakeTools((made, tool("other"))), pools, journal=NO_JOURNAL, max_concurrent_calls=9
    ) as executor:
        calls = [executor.start(request(call_id=f"c{index}")) for index in range(3)]
        free = executor.start(request(name="other", call_id="free"))
        await worker.invoked(2)
        assert [each.invocation.call_id for each in worker.attempts] == ["c0", "free"]
        calls[1].cancel(CancelReason.CALLER)
        assert code_of(await ended(calls[1])) is Code.CANCELLED_SIGNAL
        worker.attempts[0].resolve(answered())
        await worker.invoked(3)
        assert worker.attempts[2].invocation.call_id == "c2"
        for attempt in worker.attempts[1:]:
            attempt.resolve(answered())
        assert [(await ended(call)).error for call in (calls[0], calls[2], free)] == [None, None, None]
    assert pools.leases == 0
