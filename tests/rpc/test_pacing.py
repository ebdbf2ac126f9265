"""What many streams write in bulk, and what sessions ask: a few in each iteration of the loop, each in its turn."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.errors import RefusedError
from fumehood_server.rpc.pacing import MESSAGES_PER_ITERATION, WRITES_PER_ITERATION, Pacer
from fumehood_server.rpc.reading import RequestReader, Requests
from fumehood_server.rpc.unread import UnreadAnswers

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


class Stream:
    """Of a session whose caller has always sent one more message, up to `left`."""

    def __init__(self, left: int) -> None:
        self.left = left

    async def read(self) -> object:
        self.left -= 1
        return pb.SessionRequest(cancel=pb.CancelCallRequest()).SerializeToString() if self.left >= 0 else grpc.aio.EOF


async def test_one_message_of_all_sessions_is_taken_in_an_iteration_also_one_that_is_refused() -> None:
    reader = RequestReader(UnreadAnswers(lambda _: None))
    taken, refused = [0], Counter[str]()

    async def serve(requests: Requests[pb.SessionRequest], _context: object) -> None:
        while True:
            try:
                if await requests.read() is None:
                    return
            except RefusedError:
                refused["messages"] += 1
            taken[0] += 1

    method = reader.duplex(serve, pb.SessionRequest)
    bounded = reader.duplex(serve, pb.SessionRequest, max_bytes=1)
    seen = [0]
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        for each in (method, bounded) * 5:
            tasks.create_task(each.handler.stream_stream(None, Stream(20)))
        while taken[0] < 200:
            await asyncio.sleep(0)
            seen.append(taken[0])
    assert max(after - before for before, after in itertools.pairwise(seen)) == MESSAGES_PER_ITERATION
    assert refused["messages"] == 100


async def test_a_stream_that_is_not_paced_waits_for_no_session() -> None:
    reader, order = RequestReader(UnreadAnswers(lambda _: None)), list[str]()

    def serving(name: str) -> Callable[[Requests[pb.SessionRequest], object], Awaitable[None]]:
        async def serve(requests: Requests[pb.SessionRequest], _context: object) -> None:
            while await requests.read() is not None:
                order.append(name)

        return serve

    sessions = reader.duplex(serving("session"), pb.SessionRequest)
    hook = reader.duplex(serving("hook"), pb.SessionRequest, paced=False)
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        for each in (*[sessions] * 5, hook):
            tasks.create_task(each.handler.stream_stream(None, Stream(20)))
    assert order.index("hook") <= 1
    assert order[order.index("hook") :][:20] == ["hook"] * 20


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
