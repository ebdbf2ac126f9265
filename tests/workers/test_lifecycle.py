"""The states of a worker, and how its end is asked for."""

from __future__ import annotations

import asyncio
import itertools
import math
import os

import pytest
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import LogSink
from fumehood_server.workers.faults import Violation
from fumehood_server.workers.process.lifecycle import EndRequest, ImpossibleTransitionError, Lifecycle, advance
from hypothesis import given
from hypothesis import strategies as st

BOUND_S = 60.0

POSSIBLE = {
    (WorkerState.STARTING, WorkerState.READY),
    (WorkerState.STARTING, WorkerState.ENDING),
    (WorkerState.READY, WorkerState.ENDING),
    (WorkerState.ENDING, WorkerState.DEAD),
}

FIRST = CallError(code=Code.TOOL_UNAVAILABLE, message="first")
SECOND = CallError(code=Code.TOOL_UNAVAILABLE, message="second")


def lifecycle() -> Lifecycle:
    return Lifecycle("probe", "probe-1", LogSink().of("probe"))


@pytest.fixture
def life() -> Lifecycle:
    return lifecycle()


def test_worker_goes_only_from_start_to_end() -> None:
    wrong = []
    for state, to in itertools.product(WorkerState, WorkerState):
        try:
            went = advance(state, to) is to
        except ImpossibleTransitionError as error:
            went = False
            assert (error.state, error.to) == (state, to)  # noqa: PT017 - one of the two outcomes
        if went != ((state, to) in POSSIBLE):
            wrong.append(f"{state} -> {to}: {went}")
    assert wrong == []


def test_worker_that_was_asked_to_end_does_not_become_ready(life: Lifecycle) -> None:
    life.request(EndRequest.SHUTDOWN)
    with pytest.raises(ImpossibleTransitionError):
        life.become_ready()
    assert life.state is WorkerState.ENDING
    other = lifecycle()
    other.become_ready()
    assert other.state is WorkerState.READY, "control: one that was not asked does"


def test_worker_is_not_dead_before_its_end_has_begun(life: Lifecycle) -> None:
    life.become_ready()
    with pytest.raises(ImpossibleTransitionError):
        life.become_dead()
    life.stop_admitting()
    life.become_dead()
    assert life.state is WorkerState.DEAD


@given(st.lists(st.sampled_from([end for end in EndRequest if end]), min_size=1))
def test_requests_escalate_and_never_soften(ends: list[EndRequest]) -> None:
    life = lifecycle()
    life.become_ready()
    for count, end in enumerate(ends, 1):
        life.request(end)
        assert life.requested is max(ends[:count])
        assert life.state is WorkerState.ENDING


def test_worker_that_stops_admitting_by_itself_was_not_asked_to_end(life: Lifecycle) -> None:
    life.become_ready()
    life.stop_admitting()
    assert (life.state, life.requested) == (WorkerState.ENDING, EndRequest.NONE)


def test_first_cause_counts(life: Lifecycle) -> None:
    life.request(EndRequest.SHUTDOWN)
    life.request(EndRequest.TERMINATE, FIRST)
    life.request(EndRequest.KILL, SECOND)
    assert life.cause == FIRST
    assert life.requested is EndRequest.KILL


def test_fault_kills_and_is_told_once(life: Lifecycle) -> None:
    life.fail(FIRST)
    life.fail(SECOND)
    life.violated(Violation.FRAME_MALFORMED, "not a frame")
    assert (life.failed, life.cause, life.requested) == (True, FIRST, EndRequest.KILL)


def test_fault_of_a_worker_that_is_being_killed_is_none_of_its_own(life: Lifecycle) -> None:
    life.request(EndRequest.KILL)
    life.fail(FIRST)
    assert (life.failed, life.cause) == (False, None)
    terminated = lifecycle()
    terminated.request(EndRequest.TERMINATE)
    terminated.fail(FIRST)
    assert (terminated.failed, terminated.cause) == (True, FIRST), "control: one that may still speak has faults"


def test_nothing_is_asked_of_a_dead_worker(life: Lifecycle) -> None:
    life.request(EndRequest.STOP_ADMITTING)
    life.become_dead()
    life.request(EndRequest.KILL, FIRST)
    life.fail(SECOND)
    life.stop_admitting()
    assert (life.state, life.requested, life.cause) == (WorkerState.DEAD, EndRequest.STOP_ADMITTING, None)
    assert not life.failed


async def test_first_pipe_that_is_closed_is_remembered(life: Lifecycle) -> None:
    life.pipe_closed(Violation.STDOUT_CLOSED, "it closed its stdout")
    life.pipe_closed(Violation.STDIN_CLOSED, "it closed its stdin")
    assert life.closed_pipe is not None
    assert life.closed_pipe.violation is Violation.STDOUT_CLOSED
    assert life.state is WorkerState.STARTING, "it may be its exit"


@pytest.mark.parametrize(
    "change",
    [
        Lifecycle.notify,
        Lifecycle.become_ready,
        Lifecycle.stop_admitting,
        lambda life: life.request(EndRequest.KILL),
        lambda life: life.fail(FIRST),
        lambda life: life.pipe_closed(Violation.STDIN_CLOSED, "it closed its stdin"),
    ],
    ids=["notify", "ready", "stop_admitting", "request", "fail", "pipe_closed"],
)
async def test_who_waits_for_a_change_goes_on_at_each(life: Lifecycle, change: object) -> None:
    waiting = asyncio.create_task(life.wait_for_change())
    await asyncio.sleep(0)
    assert not waiting.done()
    change(life)  # type: ignore[operator] # one of the functions above
    async with asyncio.timeout(BOUND_S):
        await waiting


async def test_change_before_the_wait_is_no_change(life: Lifecycle) -> None:
    """Who waits has looked before; a notification that was kept would be one look too many."""
    life.notify()
    waiting = asyncio.create_task(life.wait_for_change())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    life.notify()
    async with asyncio.timeout(BOUND_S):
        await waiting


async def test_wait_for_a_change_ends_at_its_time(life: Lifecycle) -> None:
    now = asyncio.get_running_loop().time()
    async with asyncio.timeout(BOUND_S):
        await life.wait_for_change(until=now)
        await life.wait_for_change(until=-math.inf)
        assert not await life.until(lambda: False, within_s=0.0)
        assert await life.until(lambda: True, within_s=0.0)


async def test_wait_for_a_change_can_be_cancelled(life: Lifecycle) -> None:
    waiting = asyncio.create_task(life.wait_for_change(until=math.inf))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,), timeout=BOUND_S)
    assert waiting.cancelled()


async def test_until_looks_again_after_each_change(life: Lifecycle) -> None:
    waiting = asyncio.create_task(life.until(lambda: life.requested is EndRequest.KILL, within_s=BOUND_S))
    for end in (EndRequest.STOP_ADMITTING, EndRequest.SHUTDOWN, EndRequest.TERMINATE):
        life.request(end)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done(), end
    life.request(EndRequest.KILL)
    assert await waiting


async def test_worker_has_vanished_when_each_of_its_processes_has_exited(life: Lifecycle) -> None:
    """Ends of pipes stand for pidfds: they become readable as well."""
    pipes = [os.pipe() for _ in range(2)]
    try:
        life.watch_exits([reading for reading, _ in pipes])
        assert not life.exited
        os.write(pipes[0][1], b".")
        async with asyncio.timeout(BOUND_S):
            assert await life.until(lambda: life.exited, within_s=BOUND_S)
            assert not life.vanished
            os.write(pipes[1][1], b".")
            assert await life.until(lambda: life.vanished, within_s=BOUND_S)
    finally:
        for fd in itertools.chain(*pipes):
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
