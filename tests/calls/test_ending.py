"""Calls that end early: by a deadline, a cancellation, the end of the sidecar. Each has one outcome and one line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from fumehood_sandbox import Level
from fumehood_server.calls import Call, Executor
from fumehood_server.errors import RefusalReason, RefusedError
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import ExecutionMode
from fumehood_server.model.worker import CancelReason

from tests.calls.fake import (
    BOUND_S,
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

SOON_S = 0.25
"""A timeout that a test waits for."""

ITERATIONS = 24
"""Of the loop: more than `_stages` takes."""


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
    assert worker.attempts[0].reasons == [CancelReason.DEADLINE]


async def test_the_tools_own_timeout_ends_the_call(pools: FakePools) -> None:
    async with Executor(
        FakeTools((tool(timeout_s=SOON_S),)), pools, journal=NO_JOURNAL, max_concurrent_calls=1
    ) as executor:
        outcome = await outcome_of(executor)
    assert code_of(outcome) is Code.TOOL_TIMEOUT
    assert outcome.error is not None
    assert outcome.error.details["bound"] == "tool"


async def test_a_tool_that_may_have_written_is_not_called_retryable_after_a_timeout(pools: FakePools) -> None:
    made = tool(level=Level.WRITE, timeout_s=SOON_S)
    async with Executor(FakeTools((made,)), pools, journal=NO_JOURNAL, max_concurrent_calls=1) as executor:
        outcome = await outcome_of(executor)
    assert outcome.error is not None
    assert not outcome.error.retryable


async def test_the_deadline_travels_to_the_worker(executor: Executor, worker: FakeWorker) -> None:
    worker.answer = lambda _: answered("ok")
    await outcome_of(executor, timeout_s=5.0)
    assert 4.0 < worker.attempts[0].invocation.timeout_s <= 5.0


async def test_a_call_whose_deadline_has_passed_is_not_started(executor: Executor, worker: FakeWorker) -> None:
    outcome = await outcome_of(executor, caller_deadline=asyncio.get_running_loop().time() - 1)
    assert code_of(outcome) is Code.CANCELLED_TIMEOUT
    assert worker.attempts == []


async def test_a_deadline_ends_the_wait_for_a_worker(executor: Executor, pools: FakePools) -> None:
    pools.cold = True
    outcome = await outcome_of(executor, timeout_s=SOON_S)
    assert code_of(outcome) is Code.TOOL_TIMEOUT
    assert outcome.attempts == 0


async def test_a_deadline_ends_the_wait_for_a_turn(pools: FakePools, worker: FakeWorker) -> None:
    made = tool(mode=ExecutionMode.SEQUENTIAL)
    async with Executor(FakeTools((made,)), pools, journal=NO_JOURNAL, max_concurrent_calls=2) as executor:
        first = executor.start(request(call_id="first"))
        outcome = await outcome_of(executor, timeout_s=SOON_S)
        assert (code_of(outcome), outcome.attempts) == (Code.TOOL_TIMEOUT, 0)
        worker.attempts[0].resolve(answered())
        assert (await ended(first)).error is None
        worker.answer = lambda _: answered("ok")
        assert (await outcome_of(executor)).error is None, "the turn was given back"


async def test_cancelling_ends_the_call_once_its_worker_has_let_go(executor: Executor, worker: FakeWorker) -> None:
    worker.ignores_end = True
    call = executor.start(request())
    updates = listen(call)
    await worker.invoked(1)
    assert executor.cancel("c1", "no longer wanted")
    await worker.told(1)
    assert executor.cancel("c1"), "it is still under way"
    worker.attempts[0].update("nobody listens any more", 1)
    worker.attempts[0].resolve(answered("too late"))
    outcome = await ended(call)
    assert code_of(outcome) is Code.CANCELLED_SIGNAL
    assert outcome.error is not None
    assert outcome.error.details["note"] == "no longer wanted"
    assert outcome.error.details["ended_by"] == "result"
    assert "too late" not in str(outcome.content)
    assert not executor.cancel("c1")
    assert updates == []


async def test_a_result_that_has_come_wins_over_a_cancellation(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    await worker.invoked(1)
    worker.attempts[0].resolve(answered("done"))
    executor.cancel("c1")
    assert (await ended(call)).error is None
    assert worker.attempts[0].reasons == []


async def test_a_cancellation_that_has_come_wins_over_a_result(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    await worker.invoked(1)
    worker.ignores_end = True
    executor.cancel("c1")
    await worker.told(1)
    worker.attempts[0].resolve(answered("done"))
    assert code_of(await ended(call)) is Code.CANCELLED_SIGNAL


async def test_the_first_reason_counts(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    await worker.invoked(1)
    call.cancel(CancelReason.SHUTDOWN)
    call.cancel(CancelReason.CALLER, "too late")
    outcome = await ended(call)
    assert outcome.error is not None
    assert (outcome.error.details["reason"], worker.attempts[0].reasons) == ("shutdown", [CancelReason.SHUTDOWN])


async def test_nobody_is_harmed_by_who_stops_waiting(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    waiting = asyncio.create_task(call.outcome())
    await worker.invoked(1)
    waiting.cancel()
    await asyncio.wait((waiting,))
    worker.attempts[0].resolve(answered("done"))
    assert (await ended(call)).error is None


@pytest.mark.parametrize(("left_s", "code"), [(60.0, Code.CANCELLED_SIGNAL), (0.01, Code.CANCELLED_TIMEOUT)])
async def test_an_abandoned_call_ends_by_its_caller_or_by_the_callers_deadline_that_is_about_to_pass(
    executor: Executor, left_s: float, code: Code
) -> None:
    call = executor.start(request(caller_deadline=time.monotonic() + left_s))
    call.abandon()
    assert code_of(await ended(call)) is code


async def test_a_drain_refuses_new_calls_and_cancels_the_rest(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    await worker.invoked(1)
    executor.close_admission()
    with pytest.raises(RefusedError) as refused:
        executor.start(request(call_id="late"))
    assert refused.value.refusal.reason is RefusalReason.DRAINING
    executor.cancel_all(CancelReason.SHUTDOWN)
    assert code_of(await ended(call)) is Code.CANCELLED_SIGNAL
    assert worker.attempts[0].reasons == [CancelReason.SHUTDOWN]


async def test_leaving_the_executor_ends_every_call(pools: FakePools, log: Log) -> None:
    tools = FakeTools((tool(), tool("other")))
    pools.cold = True
    calls: list[Call] = []

    async def serve_and_fail() -> None:
        async with Executor(tools, pools, journal=NO_JOURNAL, max_concurrent_calls=2) as executor:
            calls.append(executor.start(request()))
            await asyncio.sleep(0)
            calls.append(executor.start(request(name="other", call_id="has-not-begun")))
            raise KeyError

    with pytest.raises(KeyError):
        await serve_and_fail()
    for call in calls:
        assert code_of(await ended(call)) is Code.CANCELLED_SIGNAL
    assert [line["event"] for line in log()] == ["execute_cancelled"] * 2


@pytest.mark.parametrize(("level", "unknown"), [(Level.WRITE, True), (Level.READ, None)])
async def test_a_worker_that_never_lets_go_holds_up_nobody(
    pools: FakePools, worker: FakeWorker, level: Level, unknown: object
) -> None:
    worker.ignores_end = True
    tools = FakeTools((tool(level=level),))
    async with Executor(tools, pools, journal=NO_JOURNAL, max_concurrent_calls=1, release_s=SOON_S) as executor:
        call = executor.start(request())
        await worker.invoked(1)
    outcome = await ended(call)
    assert code_of(outcome) is Code.CANCELLED_SIGNAL
    assert outcome.error is not None
    assert outcome.error.details.get("outcome_unknown") is unknown
    assert pools.leases == 0


async def _stages(pools: FakePools, worker: FakeWorker, holder: Call) -> None:
    """Take a call through each of its waits, a few iterations of the loop apart: its turn, a worker, the result."""
    await _iterations(4)
    worker.attempts[0].resolve(answered("the turn is free"))
    await ended(holder)
    await _iterations(4)
    pools.warm.set()
    await _iterations(6)
    for attempt in worker.attempts[1:]:
        if not attempt.ended:
            attempt.resolve(answered("done"))


async def _iterations(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _by_caller(call: Call) -> None:
    call.cancel(CancelReason.CALLER, "enough")


def _twice(call: Call) -> None:
    call.cancel(CancelReason.CALLER)
    call.cancel(CancelReason.SHUTDOWN)


@pytest.mark.parametrize("cancel", [_by_caller, _twice, Call.abandon])
@pytest.mark.parametrize("ignores_end", [False, True])
async def test_a_cancellation_at_any_iteration_of_the_loop_leaves_one_outcome_and_nothing_else(
    log: Log, cancel: Callable[[Call], None], ignores_end: bool
) -> None:
    seen: set[tuple[Code | None, int]] = set()
    tools = FakeTools((tool(mode=ExecutionMode.SEQUENTIAL),))
    for iterations in range(ITERATIONS):
        worker = FakeWorker()
        pools = FakePools(worker=worker)
        async with Executor(tools, pools, journal=NO_JOURNAL, max_concurrent_calls=2, release_s=BOUND_S) as executor:
            holder = executor.start(request(call_id="holder"))
            await worker.invoked(1)
            pools.cold, worker.ignores_end = True, ignores_end
            call = executor.start(request(call_id="subject"))
            stages = asyncio.create_task(_stages(pools, worker, holder))
            await _iterations(iterations)
            cancel(call)
            outcome = await ended(call)
            seen.add((None if outcome.error is None else outcome.error.code, outcome.attempts))
            await stages
            assert executor.calls_in_flight == 0
            worker.answer = lambda _: answered("control")
            assert (await outcome_of(executor, call_id="next")).error is None, "the turn is free"
        assert (pools.leases, iterations) == (0, iterations)
        assert (await ended(call)) is outcome
    cancelled = Code.CANCELLED_SIGNAL
    assert seen == {(cancelled, 0), (cancelled, 1), (None, 1)}
    lines = [line["event"] for line in log() if line.get("call_id") == "subject"]
    assert len(lines) == ITERATIONS
    assert set(lines) == {"execute_cancelled", "execute_end"}
    assert [line for line in log() if line["level"] == "error"] == []


async def test_a_deadline_at_any_iteration_of_the_loop_leaves_one_outcome(pools: FakePools, log: Log) -> None:
    async with Executor(
        FakeTools((tool(),)), pools, journal=NO_JOURNAL, max_concurrent_calls=2 * ITERATIONS
    ) as executor:
        pools.worker.answer = lambda _: answered("done")
        loop = asyncio.get_running_loop()
        calls = [
            executor.start(request(call_id=f"c{index}", caller_deadline=loop.time() + index * 1e-5))
            for index in range(ITERATIONS)
        ]
        outcomes = [await ended(call) for call in calls]
    assert {each.error.code for each in outcomes if each.error} <= {Code.CANCELLED_TIMEOUT}
    assert sorted(str(line["call_id"]) for line in log()) == sorted(each.call_id for each in outcomes)


async def test_each_outcome_of_a_burst_is_its_own(executor: Executor, worker: FakeWorker) -> None:
    worker.answer = lambda invocation: answered(invocation.call_id)
    outcomes: list[CallOutcome] = await asyncio.gather(
        *(ended(executor.start(request(call_id=f"c{index}"))) for index in range(3))
    )
    assert [each.content[0].text for each in outcomes] == ["c0", "c1", "c2"]
