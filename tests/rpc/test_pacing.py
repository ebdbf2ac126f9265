"""Bulk writes of many streams: a few begin in each iteration of the loop, each in its turn."""

from __future__ import annotations

import asyncio
import itertools

from fumehood_server.rpc.pacing import REQUESTS_PER_ITERATION, WRITES_PER_ITERATION, Pacer
from fumehood_server.rpc.reading import RequestReader
from fumehood_server.rpc.unread import UnreadAnswers
from grpc_health.v1 import health_pb2

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


async def test_callers_take_turns_whatever_each_has_queued() -> None:
    pacer, begun = Pacer(1), list[str]()

    async def write(caller: str, connection: str) -> None:
        await pacer.turn((caller, connection))
        begun.append(f"{caller}/{connection}")

    tasks = [asyncio.create_task(write("flood", str(number % 2))) for number in range(WRITERS)]
    tasks += [asyncio.create_task(write("other", "2")) for _ in range(2)]
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*tasks)
    assert begun[1:5] == ["flood/1", "other/2", "flood/0", "other/2"]
    assert begun[5:] == (["flood/1", "flood/0"] * WRITERS)[: len(begun) - 5]


async def test_requests_of_a_connection_that_sends_very_many_are_begun_in_turns_with_those_of_others() -> None:
    begun = list[str]()
    reader = RequestReader(UnreadAnswers(lambda _: None))

    class Context:
        def __init__(self, peer: str) -> None:
            self._peer = peer

        def peer(self) -> str:
            return self._peer

        async def read(self) -> bytes:
            begun.append(self._peer)
            return b""

        def add_done_callback(self, _done: object) -> None:
            pass

    async def say(_request: object, _context: object) -> bytes:
        return b""

    answer = reader.unary(say, health_pb2.HealthCheckRequest).handler.stream_unary
    peers = ["ipv4:127.0.0.1:1"] * 600 + ["unix:"]
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(answer(None, Context(peer)) for peer in peers))
    assert len(begun) == len(peers)
    assert begun.index("unix:") <= REQUESTS_PER_ITERATION + 1
