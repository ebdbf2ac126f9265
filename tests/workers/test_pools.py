"""When a worker is started, shared, replaced and ended. Real processes, the honest plugin of the fault tests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import psutil
import pytest
from fumehood_sandbox import Level
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Reason
from fumehood_server.model.worker import CancelReason, WorkerState
from fumehood_server.workers import LogSink, Pools

from tests.faults.bench import BOUND_S, SETTINGS, Bench, Updates, ended, error_of, invocation, until_dead

T = TypeVar("T")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with pools_with() as bench:
        yield bench


class pools_with:  # noqa: N801 - used as a context manager
    """Pools with changed settings, and the promise that nothing is left."""

    def __init__(self, **changes: float) -> None:
        logs = LogSink()
        # With time for the answer to a cancellation on a machine that does other things as well.
        changes = {"cancel_grace_s": BOUND_S, **changes}
        self.bench = Bench(Pools(logs, dataclasses.replace(SETTINGS, **changes)), logs)

    async def __aenter__(self) -> Bench:
        await self.bench.pools.__aenter__()
        return self.bench

    async def __aexit__(self, *error: object) -> None:
        await self.bench.pools.__aexit__(*error)
        assert self.bench.left() == []
        assert self.bench.pools.workers() == ()


async def bounded(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(BOUND_S):
        return await awaitable


async def test_nothing_runs_until_somebody_calls(bench: Bench) -> None:
    assert bench.pools.try_acquire(bench.spec()) is None
    assert bench.pools.workers() == ()
    assert bench.left() == []


async def test_callers_at_once_share_one_start_and_one_process(bench: Bench) -> None:
    spec = bench.spec(max_workers=4)
    leases = await bounded(asyncio.gather(*(bench.pools.acquire(spec) for _ in range(8))))
    assert len({lease.worker.worker_id for lease in leases}) == 1
    (info,) = bench.pools.workers()
    assert (info.state, info.process_id > 0) == (WorkerState.READY, True)
    for lease in leases:
        lease.release()
        lease.release()
    assert bench.pools.try_acquire(spec) is not None


async def test_a_full_worker_gets_company_up_to_the_limit_and_the_rest_waits(bench: Bench) -> None:
    spec = bench.spec("serve_two_at_a_time", max_workers=2)
    leases = await bounded(asyncio.gather(*(bench.pools.acquire(spec) for _ in range(4))))
    assert sorted(lease.worker.worker_id for lease in leases).count(leases[0].worker.worker_id) == 2
    assert len({lease.worker.worker_id for lease in leases}) == 2
    waiting = asyncio.ensure_future(bench.pools.acquire(spec))
    assert bench.pools.try_acquire(spec) is None
    done, _ = await asyncio.wait((waiting,), timeout=0)
    assert not done
    leases[3].release()
    assert (await bounded(waiting)).worker is leases[3].worker
    assert len(bench.pools.workers()) == 2


async def test_the_least_loaded_worker_is_taken(bench: Bench) -> None:
    spec = bench.spec("serve_two_at_a_time", max_workers=2)
    leases = await bounded(asyncio.gather(*(bench.pools.acquire(spec) for _ in range(3))))
    alone = next(lease for lease in leases if [each.worker for each in leases].count(lease.worker) == 1)
    another = bench.pools.try_acquire(spec)
    assert another is not None
    assert another.worker is alone.worker


async def test_specs_with_other_keys_never_share_a_process(bench: Bench) -> None:
    none = await bounded(bench.pools.acquire(bench.spec(level=Level.NONE)))
    write = await bounded(bench.pools.acquire(bench.spec(level=Level.WRITE)))
    assert none.worker is not write.worker
    assert (none.worker.receipt.level, write.worker.receipt.level) == (Level.NONE, Level.WRITE)


async def test_a_caller_who_gives_up_waiting_leaves_no_trace(bench: Bench) -> None:
    spec = bench.spec("serve_two_at_a_time")
    first, second = [await bounded(bench.pools.acquire(spec)) for _ in range(2)]
    waiting = [asyncio.ensure_future(bench.pools.acquire(spec)) for _ in range(5)]
    await asyncio.wait(waiting, timeout=0)
    for task in waiting[:4]:
        task.cancel()
    await asyncio.wait(waiting[:4], timeout=BOUND_S)
    first.release()
    last = await bounded(waiting[4])
    last.release()
    second.release()
    assert bench.pools.try_acquire(spec) is not None


async def test_a_place_given_as_its_caller_gives_up_is_not_lost(bench: Bench) -> None:
    spec = bench.spec("serve_two_at_a_time")
    leases = [await bounded(bench.pools.acquire(spec)) for _ in range(2)]
    waiting = asyncio.ensure_future(bench.pools.acquire(spec))
    await asyncio.wait((waiting,), timeout=0)
    leases[0].release()
    waiting.cancel()
    await asyncio.wait((waiting,), timeout=BOUND_S)
    assert bench.pools.try_acquire(spec) is not None


async def test_a_caller_who_gives_up_during_a_start_does_not_end_it(bench: Bench) -> None:
    spec = bench.spec()
    waiting = asyncio.ensure_future(bench.pools.acquire(spec))
    await asyncio.wait((waiting,), timeout=0)
    assert [info.state for info in bench.pools.workers()] == [WorkerState.STARTING]
    waiting.cancel()
    lease = await bounded(bench.pools.acquire(spec))
    assert len(bench.pools.workers()) == 1
    lease.release()


async def test_an_idle_worker_is_ended_and_started_again_on_demand() -> None:
    async with pools_with(idle_s=0.05) as bench:
        spec = bench.spec()
        lease = await bounded(bench.pools.acquire(spec))
        worker = lease.worker
        assert (await ended(worker.invoke(invocation("echo")))).error is None
        lease.release()
        await until_dead(worker)
        assert bench.left() == []
        assert bench.pools.workers() == ()
        assert (await bench.call(spec, "echo")).error is None


async def test_a_worker_that_is_never_called_is_ended_too() -> None:
    async with pools_with(idle_s=0.05) as bench:
        spec = bench.spec()
        waiting = asyncio.ensure_future(bench.pools.acquire(spec))
        await asyncio.wait((waiting,), timeout=0)
        waiting.cancel()
        async with asyncio.timeout(BOUND_S):
            while bench.pools.workers():  # noqa: ASYNC110 - the pools tell nobody that they are empty
                await asyncio.sleep(0.01)


async def test_a_busy_worker_is_not_ended_for_idleness() -> None:
    async with pools_with(idle_s=0.05) as bench:
        spec = bench.spec()
        lease = await bounded(bench.pools.acquire(spec))
        updates = Updates()
        handle = lease.worker.invoke(invocation("slow", updates))
        idle = await bounded(bench.pools.acquire(bench.honest_spec))
        idle.release()
        await until_dead(idle.worker)
        assert not handle.ended
        assert error_of(await handle.end(CancelReason.CALLER)).details["ended_by"] == "cancel_frame"


async def test_idle_pools_cost_no_time() -> None:
    async with pools_with() as bench:
        lease = await bounded(bench.pools.acquire(bench.spec()))
        lease.release()
        loop = asyncio.get_running_loop()
        # One timer for the pool, and none for the worker.
        assert len([handle for handle in loop._scheduled if not handle.cancelled()]) <= 2  # type: ignore[attr-defined] # asyncio shows it in no other way


async def test_a_plugin_that_crashes_waits_longer_each_time() -> None:
    # Each wait, and how long it is remembered, is longer than a busy machine holds up a test.
    async with pools_with(backoff_first_s=0.3, backoff_last_s=0.8) as bench:
        spec = bench.spec("exits_at_start")
        waits = []
        for count in range(1, 5):
            error = await bench.start_error(spec)
            async with asyncio.timeout(BOUND_S):
                while starts(bench) < count:
                    error = await bench.start_error(spec)
                    await asyncio.sleep(0.005)
            waits.append(error.details["retry_after_s"])
            assert [info.state for info in bench.pools.workers()] == [WorkerState.BACKOFF]
        assert waits[0] < waits[1] <= waits[2] == waits[3] == pytest.approx(0.8, abs=0.01)
        async with asyncio.timeout(BOUND_S):
            while bench.pools.workers():  # noqa: ASYNC110 - nothing happens when a wait is over, by design
                await asyncio.sleep(0.01)


async def test_a_crash_in_the_first_call_counts_as_a_crash_at_start() -> None:
    async with pools_with(backoff_first_s=BOUND_S) as bench:
        spec = bench.spec()
        error_of(await bench.call(spec, "is_killed"))
        error = await bench.start_error(spec)
    assert error.code is Code.TOOL_UNAVAILABLE
    assert error.details["retry_after_s"] > 0


async def test_a_crash_after_good_calls_does_not(bench: Bench) -> None:
    spec = bench.spec()
    for _ in range(3):
        assert (await bench.call(spec, "echo")).error is None
        error_of(await bench.call(spec, "is_killed"))


async def test_everybody_who_waits_for_a_failed_start_learns_the_same(bench: Bench) -> None:
    spec = bench.spec("exits_at_start")
    outcomes = await bounded(asyncio.gather(*(bench.pools.acquire(spec) for _ in range(5)), return_exceptions=True))
    assert all(isinstance(outcome, WorkerUnavailableError) for outcome in outcomes)
    assert len({outcome.error.message for outcome in outcomes}) == 1
    assert starts(bench) == 1


async def test_a_retired_worker_finishes_its_calls_first(bench: Bench) -> None:
    spec = bench.spec()
    lease = await bounded(bench.pools.acquire(spec))
    updates = Updates()
    handle = lease.worker.invoke(invocation("slow", updates))
    await updates.first()
    await bench.pools.retire(frozenset({spec.key, "no such key"}))
    assert bench.pools.try_acquire(spec) is None
    fresh = await bounded(bench.pools.acquire(spec))
    assert fresh.worker is not lease.worker
    assert not handle.ended
    assert error_of(await handle.end(CancelReason.CALLER)).details["ended_by"] == "cancel_frame"
    lease.release()
    await until_dead(lease.worker)
    assert (await ended(fresh.worker.invoke(invocation("echo")))).error is None
    fresh.release()


@pytest.mark.parametrize("tool", ["has_unknown_tools", "has_changed_tools"])
async def test_worker_whose_tools_are_not_known_to_be_those_pinned_finishes_its_calls_and_is_replaced(
    bench: Bench, tool: str
) -> None:
    spec, updates = bench.spec(max_workers=2), Updates()
    async with bench.sole_worker(spec) as worker:
        under_way = worker.invoke(invocation("slow", updates))
        await updates.first()
        assert (
            "reason" not in error_of(await ended(worker.invoke(invocation("fails_with_details_nested_less")))).details
        )
        assert worker.state is WorkerState.READY, "control: another failure ends nothing"
        error = error_of(await ended(worker.invoke(invocation(tool))))
        assert str(error.details["reason"]).startswith("definition_")
        assert worker.state is WorkerState.ENDING
        async with bench.sole_worker(spec) as next_worker:
            assert next_worker is not worker
            assert (await ended(next_worker.invoke(invocation("echo")))).content[0].text == "echo"
        assert not under_way.ended
        assert error_of(await under_way.end(CancelReason.CALLER)).details["ended_by"] == "cancel_frame"
    await until_dead(worker)


async def test_workers_that_change_their_tools_one_after_another_are_kept_ever_longer() -> None:
    """The first one is replaced at once; the next one serves on what it has not changed."""
    async with pools_with(backoff_first_s=BOUND_S * 10, backoff_last_s=BOUND_S * 10) as bench:
        spec = bench.spec()
        assert error_of(await bench.call(spec, "has_changed_tools")).details["reason"] == "definition_changed"
        async with bench.sole_worker(spec) as second:
            for _ in range(2):
                error = error_of(await ended(second.invoke(invocation("has_changed_tools"))))
                assert error.details["reason"] == "definition_changed"
                assert (await ended(second.invoke(invocation("echo")))).content[0].text == "echo"
        async with bench.sole_worker(spec) as third:
            assert third is second
        assert error_of(await bench.call(spec, "has_unknown_tools")).details["reason"] == "definition_unknown"
        assert second.state is not WorkerState.READY, "control: for another reason it is replaced"


async def test_who_waits_in_a_retired_pool_is_still_served(bench: Bench) -> None:
    spec = bench.spec("serve_two_at_a_time")
    leases = [await bounded(bench.pools.acquire(spec)) for _ in range(2)]
    waiting = asyncio.ensure_future(bench.pools.acquire(spec))
    await asyncio.wait((waiting,), timeout=0)
    await bench.pools.retire(frozenset({spec.key}))
    leases[0].release()
    served = await bounded(waiting)
    assert (await ended(served.worker.invoke(invocation("echo")))).error is None
    served.release()
    leases[1].release()
    await until_dead(served.worker)


async def test_close_lets_calls_finish_within_the_grace(bench: Bench) -> None:
    spec = bench.spec()
    lease = await bounded(bench.pools.acquire(spec))
    handle = lease.worker.invoke(invocation("echo"))
    await bounded(bench.pools.close(BOUND_S))
    assert (await ended(handle)).error is None


async def test_close_during_a_start_leaves_no_process(bench: Bench) -> None:
    waiting = asyncio.ensure_future(bench.pools.acquire(bench.spec("never_ready")))
    await asyncio.wait((waiting,), timeout=0)
    await bounded(bench.pools.close(0.0))
    with pytest.raises(WorkerUnavailableError):
        await waiting
    assert bench.left() == []


async def test_a_cancelled_close_kills_what_is_left(bench: Bench) -> None:
    lease = await bounded(bench.pools.acquire(bench.spec()))
    lease.worker.invoke(invocation("ignores_cancel_and_sigterm"))
    closing = asyncio.ensure_future(bench.pools.close(BOUND_S))
    await asyncio.wait((closing,), timeout=0)
    closing.cancel()
    await asyncio.wait((closing,), timeout=BOUND_S)
    await until_dead(lease.worker)
    assert bench.left() == []


async def test_describe_returns_the_greeting_and_leaves_no_process(bench: Bench) -> None:
    info = await bounded(bench.pools.describe(bench.spec("serve_two_at_a_time")))
    assert (info.sdk, info.max_concurrent_calls, info.tools) == ("misbehave", 2, ())
    assert bench.left() == []
    assert bench.pools.workers() == ()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_describe_leaves_no_process(bench: Bench, times: int) -> None:
    task = asyncio.ensure_future(bench.pools.describe(bench.spec("never_ready")))
    async with asyncio.timeout(BOUND_S):
        while not bench.left():  # noqa: ASYNC110 - a process of the kernel's, which tells nobody of its start
            await asyncio.sleep(0.01)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((task,), timeout=BOUND_S)
    assert task.cancelled()
    assert bench.left() == []


async def test_descriptors_do_not_leak(bench: Bench) -> None:
    await bounded(bench.pools.describe(bench.spec()))
    process = psutil.Process()
    before = process.num_fds()
    for _ in range(3):
        await bounded(bench.pools.describe(bench.spec()))
        await bench.start_error(bench.spec("other_version"))
        bench.pools._pools.clear()
    assert process.num_fds() == before


async def test_a_failing_check_before_a_start_is_told_and_holds_nobody_up() -> None:
    answers: list[Reason | Exception | None] = [
        OSError("disk on fire"),
        Reason("digest_changed", "not what was read"),
        None,
    ]

    async def verify(_: WorkerSpec) -> Reason | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    logs = LogSink()
    async with Pools(logs, dataclasses.replace(SETTINGS, backoff_first_s=0.0), verify=verify) as pools:
        bench = Bench(pools, logs)
        spec = bench.spec()
        assert "disk on fire" in (await bench.start_error(spec)).message
        assert "not what was read" in (await bench.start_error(spec)).message
        assert (await bench.call(spec, "echo")).error is None


def starts(bench: Bench) -> int:
    return sum(line.message.startswith("Traceback") for line in bench.logs.of("exits_at_start").last(1000))
