"""Plugins that die, don't die, or leave others behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fumehood_sandbox import Level
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason, WorkerState
from fumehood_server.workers import Pools

from .bench import BOUND_S, SETTINGS, Bench, Updates, ended, error_of, invocation

pytestmark = pytest.mark.promise("S906")


@contextlib.asynccontextmanager
async def patient(bench: Bench, **graces_s: float) -> AsyncIterator[Bench]:
    """The same with other graces: longer ones, where an answer is awaited, than a busy machine takes for it."""
    async with Pools(bench.logs, replace(SETTINGS, **graces_s)) as pools:
        yield Bench(pools, bench.logs, token=bench.token)


@pytest.mark.parametrize(
    ("tool", "exit_description"), [("is_killed", "killed by SIGKILL"), ("exits", "exited with status 7")]
)
async def test_a_death_in_the_middle_of_a_repeatable_call_may_be_retried(
    bench: Bench, tool: str, exit_description: str
) -> None:
    error = error_of(await bench.call(bench.spec(level=Level.READ), tool))
    assert (error.code, error.retryable) == (Code.TOOL_UNAVAILABLE, True)
    assert error.details["exit"] == exit_description
    assert bench.left() == []


@pytest.mark.parametrize("tool", ["is_killed", "exits"])
async def test_a_death_in_the_middle_of_a_writing_call_is_unknown(bench: Bench, tool: str) -> None:
    error = error_of(await bench.call(bench.spec(level=Level.WRITE), tool))
    assert (error.code, error.retryable) == (Code.TOOL_OUTCOME_UNKNOWN, False)
    assert error.caused_by is not None
    assert error.caused_by.code is Code.TOOL_UNAVAILABLE


async def test_last_words_are_told(bench: Bench) -> None:
    error = error_of(await bench.call(bench.spec(), "exits"))
    assert error.details["stderr"] == ["last words"]


async def test_a_kill_from_outside_is_seen(bench: Bench) -> None:
    spec = bench.spec()
    async with bench.sole_worker(spec) as worker:
        updates = Updates()
        handle = worker.invoke(invocation("slow", updates))
        await updates.first()
        (info,) = [each for each in bench.pools.workers() if each.spec.key == spec.key]
        os.kill(info.process_id, signal.SIGKILL)
        assert error_of(await ended(handle)).code is Code.TOOL_UNAVAILABLE
    assert bench.left() == []


async def test_a_plugin_that_answers_its_cancellation_lives(bench: Bench) -> None:
    spec = bench.spec(level=Level.WRITE)
    async with patient(bench, cancel_grace_s=BOUND_S) as waiting, waiting.sole_worker(spec) as worker:
        updates = Updates()
        handle = worker.invoke(invocation("slow", updates))
        await updates.first()
        first, second = (
            asyncio.ensure_future(handle.end(reason)) for reason in (CancelReason.CALLER, CancelReason.DEADLINE)
        )
        error = error_of(await first)
        assert (await second).error is error
        assert error.code is Code.CANCELLED_SIGNAL
        assert error.details["ended_by"] == "cancel_frame"
        assert "outcome_unknown" not in error.details
        assert (await ended(worker.invoke(invocation("echo")))).error is None


@pytest.mark.parametrize(
    ("tool", "rung"),
    [("ignores_cancel", "sigterm"), ("ignores_cancel_and_sigterm", "sigkill"), ("stops_itself", "sigkill")],
)
async def test_a_call_that_ignores_its_cancellation_is_ended_by_the_next_rung(
    bench: Bench, tool: str, rung: str
) -> None:
    spec = bench.spec(level=Level.WRITE)
    dies_s = BOUND_S if rung == "sigterm" else SETTINGS.terminate_grace_s
    # It has begun when its cancellation has been waited for.
    graces = patient(bench, cancel_grace_s=1.0, terminate_grace_s=dies_s)
    async with graces as waiting, waiting.sole_worker(spec) as worker:
        handle = worker.invoke(invocation(tool))
        error = error_of(await handle.end(CancelReason.DEADLINE))
    assert error.code is Code.TOOL_TIMEOUT
    assert error.details["ended_by"] == rung
    assert error.details["outcome_unknown"] is True
    assert bench.left() == []
    said = [line.message for line in bench.logs.of(spec.plugin).last(99) if line.source == "sidecar"]
    assert any("ignored its cancellation" in line for line in said)
    assert any("SIGTERM" in line for line in said)
    assert any("killed every process" in line for line in said) == (rung == "sigkill")


async def test_repeatable_calls_may_finish_beside_one_that_ignores_its_cancellation(bench: Bench) -> None:
    spec = bench.spec()
    graces = patient(bench, cancel_grace_s=2.0, linger_s=BOUND_S)
    async with graces as waiting, waiting.sole_worker(spec) as worker:
        deaf, slow = Updates(), Updates()
        ignoring = worker.invoke(invocation("deaf", deaf))
        sibling = worker.invoke(invocation("slow", slow))
        await slow.first()
        assert error_of(await ignoring.end(CancelReason.DEADLINE)).details["ended_by"] == "condemned"
        assert not sibling.ended
        refused = error_of(await ended(worker.invoke(invocation("echo"))))
        assert (refused.code, refused.retryable) == (Code.TOOL_UNAVAILABLE, True)
        assert error_of(await sibling.end(CancelReason.CALLER)).details["ended_by"] == "cancel_frame"
        await waiting.until_gone()


async def test_siblings_of_one_that_ignores_its_cancellation_get_a_bounded_time(bench: Bench) -> None:
    spec = bench.spec()
    async with bench.sole_worker(spec) as worker:
        slow = Updates()
        ignoring = worker.invoke(invocation("deaf"))
        sibling = worker.invoke(invocation("slow", slow))
        await slow.first()
        await ignoring.end(CancelReason.DEADLINE)
        error = error_of(await ended(sibling))
        assert (error.code, error.retryable) == (Code.TOOL_UNAVAILABLE, True)
        assert bench.left() == []


async def test_siblings_that_write_end_with_one_that_ignores_its_cancellation(bench: Bench) -> None:
    spec = bench.spec(level=Level.WRITE)
    async with patient(bench, terminate_grace_s=BOUND_S) as waiting, waiting.sole_worker(spec) as worker:
        slow = Updates()
        ignoring = worker.invoke(invocation("deaf"))
        sibling = worker.invoke(invocation("slow", slow))
        await slow.first()
        assert error_of(await ignoring.end(CancelReason.DEADLINE)).details["ended_by"] == "sigterm"
        assert error_of(await ended(sibling)).code is Code.TOOL_OUTCOME_UNKNOWN


async def test_a_child_left_behind_dies_with_its_worker(bench: Bench) -> None:
    spec = bench.spec()
    result = await bench.call(spec, "leaves_a_child")
    assert result.content[0].text == "a child is left"
    # bubblewrap, pid 1, the program, and the child whose parent is gone.
    assert len(bench.left()) >= 2
    await bench.pools.retire(frozenset({spec.key}))
    await bench.until_gone()


async def test_a_child_left_behind_by_an_exit_dies_at_once(bench: Bench) -> None:
    spec = bench.spec()
    async with bench.sole_worker(spec) as worker:
        assert (await ended(worker.invoke(invocation("leaves_a_child_and_exits")))).error is None
        await bench.until_gone()


@pytest.mark.parametrize("tool", ["closes_stdout", "stops_reading"])
async def test_a_closed_or_unread_pipe_ends_with_the_calls_deadline(bench: Bench, tool: str) -> None:
    async with bench.sole_worker(bench.spec()) as worker:
        worker.invoke(invocation(tool))
        handle = worker.invoke(invocation("echo"))
        error = error_of(await handle.end(CancelReason.DEADLINE))
        assert error.code is Code.TOOL_TIMEOUT
        assert error.details["ended_by"] in ("sigterm", "sigkill", "condemned")


@pytest.mark.parametrize("tool", ["stops_reading", "closes_stdin"])
async def test_calls_that_nobody_reads_wait_in_bounded_memory(bench: Bench, tool: str) -> None:
    big = '"' + "x" * 1_000_000 + '"'
    async with bench.sole_worker(bench.spec(level=Level.WRITE)) as worker:
        await ended(worker.invoke(invocation(tool)))
        handles = [worker.invoke(invocation("echo", arguments_json=big)) for _ in range(30)]
        refused = [await handle.result() for handle in handles if handle.ended]
        assert len(refused) > 15
        for result in refused:
            error = error_of(result)
            assert (error.code, error.retryable) == (Code.TOOL_UNAVAILABLE, True)
        for result in await asyncio.gather(*(handle.end(CancelReason.CALLER) for handle in handles)):
            error_of(result)


async def test_a_writing_call_that_was_never_sent_is_known_not_to_have_run(bench: Bench) -> None:
    big = '"' + "x" * 1_000_000 + '"'
    async with bench.sole_worker(bench.spec(level=Level.WRITE)) as worker:
        stuck = worker.invoke(invocation("ignores_cancel"))
        first = worker.invoke(invocation("echo", arguments_json=big))
        second = worker.invoke(invocation("echo", arguments_json=big))
        await stuck.end(CancelReason.DEADLINE)
        assert error_of(await ended(first)).code is Code.TOOL_OUTCOME_UNKNOWN
        error = error_of(await ended(second))
        assert (error.code, error.retryable, error.details["dispatched"]) == (Code.TOOL_UNAVAILABLE, True, False)


async def test_a_call_larger_than_a_frame_is_refused_and_the_worker_lives(bench: Bench) -> None:
    async with bench.sole_worker(bench.spec()) as worker:
        huge = '"' + "x" * (5 << 20) + '"'
        error = error_of(await ended(worker.invoke(invocation("echo", arguments_json=huge))))
        assert error.code is Code.TOOL_RESOURCE_EXHAUSTED
        assert (await ended(worker.invoke(invocation("echo")))).error is None


async def test_closing_the_pools_ends_calls_and_processes(bench: Bench) -> None:
    spec = bench.spec()
    lease = await bench.pools.acquire(spec)
    slow, deaf = Updates(), Updates()
    answers = lease.worker.invoke(invocation("slow", slow))
    ignores = lease.worker.invoke(invocation("deaf", deaf))
    await deaf.first()
    closing = asyncio.ensure_future(bench.pools.close(0.1))
    for handle in (answers, ignores):
        error = error_of(await ended(handle))
        assert error.code is Code.CANCELLED_SIGNAL
        assert error.details["cancel_reason"] == "shutdown"
    await closing
    assert bench.left() == []
    assert bench.pools.workers() == ()
    assert lease.worker.state is WorkerState.DEAD
    lease.release()
    error = await bench.start_error(spec)
    assert error.details["phase"] == "shutdown"
    bench.closed = True
