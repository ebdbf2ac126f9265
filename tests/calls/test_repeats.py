from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest
from fumehood_server.calls import Executor
from fumehood_server.calls.repeats import LARGE_CHARS, Repeats
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.model.call import Block, CallOutcome

from tests.calls.fake import BOUND_S, SPEC, FakePools, FakeTools, FakeWorker, answered, request, tool

_JOINED = 12
_LARGE = CallOutcome(call_id="c1", tool="echo", content=(Block(text="x" * (LARGE_CHARS + 1)),))


@pytest.mark.parametrize(("size", "at_once"), [(LARGE_CHARS + 1, 1), (10, _JOINED)])
async def test_a_large_outcome_is_given_to_those_who_joined_one_by_one(
    pools: FakePools, worker: FakeWorker, size: int, at_once: int
) -> None:
    roomy = replace(tool(), spec=replace(SPEC, output_bytes=2 * LARGE_CHARS))
    async with Executor(FakeTools((roomy,)), pools, journal=NO_JOURNAL, max_concurrent_calls=2 * _JOINED) as executor:
        given = await _iterations_of_outcomes(executor, worker, size)
    # Two iterations for what an order of tasks within one leaves open.
    assert max(sum(at <= other <= at + 1 for other in given) for at in given) == at_once


async def _iterations_of_outcomes(executor: Executor, worker: FakeWorker, size: int) -> list[int]:
    """In which iterations of the loop those who joined a call got its outcome."""
    named = replace(request(), is_named=True)
    first = executor.start(named)
    joined = [executor.start(named) for _ in range(_JOINED)]
    iterations = itertools.count()
    now = next(iterations)

    async def count() -> None:
        nonlocal now
        while True:
            await asyncio.sleep(0)
            now = next(iterations)

    given: list[int] = []

    async def wait(each: int) -> None:
        outcome = await joined[each].outcome()
        assert len(outcome.content[0].text or "") == size
        given.append(now)

    counting = asyncio.create_task(count())
    waiting = [asyncio.create_task(wait(each)) for each in range(_JOINED)]
    await worker.invoked(1)
    worker.attempts[0].resolve(answered("x" * size))
    async with asyncio.timeout(BOUND_S):
        await first.outcome()
        await asyncio.gather(*waiting)
    counting.cancel()
    return given


async def test_a_caller_who_repeats_many_calls_takes_turns_with_another() -> None:
    repeats, order = Repeats(), list[str]()

    async def repeat(caller: str) -> None:
        await repeats.pace(caller, _LARGE)
        order.append(caller)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(repeat("greedy"))
        for _ in range(3):
            tasks.create_task(repeat("other"))
    assert order[:8].count("other") == 3
    assert len(order) == 23
