"""Bulk writes of many streams: a few begin in each iteration of the loop, each in its turn."""

from __future__ import annotations

import asyncio
import itertools

from fumehood_server.rpc.pacing import WRITES_PER_ITERATION, Pacer

WRITERS = 50
BOUND_S = 60.0


async def test_many_writers_begin_a_few_in_each_iteration_in_the_order_in_which_they_came() -> None:
    pacer, begun = Pacer(WRITES_PER_ITERATION), list[int]()

    async def write(number: int) -> None:
        for _ in range(3):
            await pacer.turn()
            begun.append(number)

    seen = [0]
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(write(number))
        while len(begun) < 3 * WRITERS:
            await asyncio.sleep(0)
            seen.append(len(begun))
    assert max(after - before for before, after in itertools.pairwise(seen)) == WRITES_PER_ITERATION
    later = [number for number in begun if number >= WRITES_PER_ITERATION]  # the first ones met no queue
    assert later == list(range(WRITES_PER_ITERATION, WRITERS)) * 3


async def test_a_writer_that_is_alone_does_not_wait_and_one_that_was_cancelled_holds_up_nobody() -> None:
    pacer, begun = Pacer(WRITES_PER_ITERATION), list[int]()

    async def write(number: int) -> None:
        await pacer.turn()
        begun.append(number)

    alone = write(0)
    try:
        alone.send(None)
    except StopIteration:
        assert begun == [0]
    tasks = [asyncio.create_task(write(number)) for number in range(1, 10)]
    await asyncio.sleep(0)
    for task in tasks[3:6]:
        task.cancel()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert begun == [0, 1, 2, 3, 7, 8, 9]
