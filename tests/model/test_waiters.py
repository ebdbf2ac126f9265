"""The queue of those who wait for a worker."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.waiters import WaiterQueue
from fumehood_server.workers import faults


class Place:
    """A lease of a numbered place that goes back to where it came from."""

    def __init__(self, free: deque[int], number: int) -> None:
        self._free = free
        self.number = number

    def release(self) -> None:
        self._free.append(self.number)


class Line:
    """A queue for numbered places, of which none is free at first."""

    def __init__(self) -> None:
        self.queue: WaiterQueue[Place] = WaiterQueue()
        self.free: deque[int] = deque()

    async def come(self, count: int) -> list[asyncio.Task[Place]]:
        """So many callers who wait, in this order."""
        tasks = [asyncio.create_task(self.queue.wait()) for _ in range(count)]
        await iteration()
        return tasks

    def serve(self, *numbers: int) -> None:
        """Hand out these places, as far as anybody waits."""
        self.free.extend(numbers)
        self.queue.serve(lambda: Place(self.free, self.free.popleft()) if self.free else None)


async def iteration() -> None:
    await asyncio.sleep(0)


async def test_first_who_came_is_served_first() -> None:
    line = Line()
    first, second, third = await line.come(3)
    line.serve(1, 2)
    assert [(await task).number for task in (first, second)] == [1, 2]
    assert not third.done()
    assert len(line.queue) == 1
    line.serve(3)
    assert (await third).number == 3


async def test_place_that_nobody_waits_for_is_not_acquired() -> None:
    line = Line()
    line.serve(1)
    assert list(line.free) == [1]
    (waiting,) = await line.come(1)
    line.serve()
    assert (await waiting).number == 1, "control: somebody waits"


async def test_waiter_who_gives_up_is_passed_over() -> None:
    line = Line()
    first, second = await line.come(2)
    first.cancel()
    await asyncio.wait((first,))
    assert len(line.queue) == 1
    line.serve(1)
    assert (await second).number == 1
    assert not line.free


async def test_waiter_who_gives_up_in_the_iteration_before_it_is_served_takes_nothing() -> None:
    line = Line()
    first, second = await line.come(2)
    first.cancel()
    line.serve(1)
    await asyncio.wait((first, second))
    assert first.cancelled()
    assert second.result().number == 1
    assert not line.free


async def test_waiter_who_gives_up_in_the_iteration_in_which_it_is_served_gives_its_place_back() -> None:
    line = Line()
    first, second = await line.come(2)
    line.serve(1)
    first.cancel()
    await asyncio.wait((first,))
    assert first.cancelled()
    assert list(line.free) == [1]
    line.serve()
    assert (await second).number == 1


async def test_everybody_who_waits_is_told_that_there_is_no_worker() -> None:
    line = Line()
    waiting = await line.come(3)
    line.queue.fail_all(lambda: WorkerUnavailableError(faults.shutdown_error("probe")))
    assert len(line.queue) == 0
    for task in waiting:
        with pytest.raises(WorkerUnavailableError) as caught:
            await task
        assert caught.value.error == faults.shutdown_error("probe")
    (later,) = await line.come(1)
    assert not later.done(), "control: who comes afterwards waits"
    line.serve(1)
    assert (await later).number == 1


async def test_waiter_who_gives_up_as_it_is_told_of_a_failure_is_cancelled() -> None:
    line = Line()
    first, second = await line.come(2)
    line.queue.fail_all(lambda: WorkerUnavailableError(faults.shutdown_error("probe")))
    first.cancel()
    await asyncio.wait((first, second))
    assert first.cancelled()
    assert isinstance(second.exception(), WorkerUnavailableError)


async def test_who_was_served_keeps_its_place_when_the_others_are_failed() -> None:
    line = Line()
    first, second = await line.come(2)
    line.serve(1)
    line.queue.fail_all(lambda: WorkerUnavailableError(faults.shutdown_error("probe")))
    assert (await first).number == 1
    with pytest.raises(WorkerUnavailableError):
        await second
