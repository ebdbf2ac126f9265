"""Both ends of a worker's pipes: frames go out at once and in order, floods come in by portions, ends are told once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from fumehood_server.workers.faults import Violation
from fumehood_server.workers.wire.frame_reader import FRAMES_AT_ONCE
from fumehood_server.workers.wire.portions import PORTION_ITEMS

from .piped_worker import BOUND_S, STEPS, Worker, frame, iteration, piped

MORE_THAN_A_PIPE = 1_000_000


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    with piped() as made:
        yield made


async def test_frame_is_in_the_pipe_when_send_returns(worker: Worker) -> None:
    worker.written_to().send(b"a")
    assert worker.read() == b"a"


async def test_what_a_full_pipe_does_not_take_comes_later_and_in_order(worker: Worker) -> None:
    writer = worker.written_to()
    frames = [b"a" * MORE_THAN_A_PIPE, b"b", b"c" * MORE_THAN_A_PIPE, b"d"]
    for each in frames:
        writer.send(each)
    expected = b"".join(frames)
    assert 0 < writer.unsent_bytes < len(expected)
    assert writer.queued_bytes == len(expected)
    assert await worker.read_exactly(len(expected)) == expected
    assert (writer.unsent_bytes, writer.written_bytes) == (0, len(expected))
    writer.send(b"e")
    assert worker.read() == b"e", "control: written at once again"


async def test_more_frames_than_one_write_takes_come_in_order(worker: Worker) -> None:
    writer = worker.written_to()
    frames = [b"a" * MORE_THAN_A_PIPE, *(b"%4d" % number for number in range(1000))]
    for each in frames:
        writer.send(each)
    expected = b"".join(frames)
    assert await worker.read_exactly(len(expected)) == expected


async def test_who_waits_for_the_pipe_goes_on_when_enough_was_read(worker: Worker) -> None:
    writer = worker.written_to()
    writer.send(b"a" * MORE_THAN_A_PIPE)
    waiting = asyncio.create_task(writer.drained(0))
    await iteration()
    assert not waiting.done()
    await worker.read_exactly(MORE_THAN_A_PIPE)
    async with asyncio.timeout(BOUND_S):
        await waiting


@pytest.mark.parametrize("size", [1, MORE_THAN_A_PIPE])
async def test_closed_stdin_is_told_once(worker: Worker, size: int) -> None:
    writer = worker.written_to()
    writer.send(b"a" * size)
    assert worker.broken == 0, "control: a pipe that somebody holds is not broken"
    worker.close_stdin()
    writer.send(b"b")
    writer.send(b"c")
    async with asyncio.timeout(BOUND_S):
        await writer.drained(0)
        while not worker.broken:
            await iteration()
    await iteration()
    assert worker.broken == 1


async def test_nothing_is_written_or_told_after_stop(worker: Worker) -> None:
    writer, reader = worker.written_to(), worker.read_from()
    writer.send(b"a" * MORE_THAN_A_PIPE)
    waiting = asyncio.create_task(writer.drained(0))
    await iteration()
    worker.say(1)
    writer.stop()
    reader.stop()
    worker.close_stdin()
    writer.send(b"b")
    worker.close_stdout()
    async with asyncio.timeout(BOUND_S):
        await waiting
    for _ in range(5):
        await iteration()
    assert (worker.heard, worker.problems, worker.ends, worker.broken) == ([], [], 0, 0)
    assert reader.ended


async def test_flood_is_handed_on_by_portions_and_in_order(worker: Worker) -> None:
    worker.read_from()
    count = PORTION_ITEMS * 5
    worker.say(*range(1, count + 1))
    portions = [0]
    async with asyncio.timeout(BOUND_S):
        while len(worker.heard) < count:
            await iteration()
            portions.append(len(worker.heard))
    assert worker.heard == list(range(1, count + 1))
    assert max(after - before for before, after in itertools.pairwise(portions)) <= PORTION_ITEMS


async def test_a_frame_that_is_taken_in_steps_comes_before_the_next_and_lets_the_loop_go_on(worker: Worker) -> None:
    worker.in_steps = frozenset({2, 4})
    worker.read_from()
    worker.say(1, 2, 3, 4)
    worker.close_stdout()
    steps = [0]
    async with asyncio.timeout(BOUND_S):
        while not worker.ends:
            await iteration()
            steps.append(worker.steps)
    assert worker.heard == [1, 2, 3, 4]
    assert worker.steps == 2 * STEPS
    assert max(after - before for before, after in itertools.pairwise(steps)) <= PORTION_ITEMS


@pytest.mark.parametrize("number", [1, FRAMES_AT_ONCE + 2], ids=["at once", "in its turn"])
@pytest.mark.parametrize("in_steps", [False, True])
async def test_a_frame_that_cant_be_taken_ends_the_reading_and_is_told_once(
    worker: Worker, number: int, in_steps: bool
) -> None:
    worker.faulty, worker.in_steps = number, frozenset({number} if in_steps else ())
    reader = worker.read_from()
    worker.say(*range(1, number + 3))
    async with asyncio.timeout(BOUND_S):
        while not worker.faults:
            await iteration()
    for _ in range(5):
        await iteration()
    assert worker.heard == list(range(1, number))
    assert worker.faults == 1
    assert reader.ended


@pytest.mark.parametrize("how", ["stopped", "closed"])
async def test_steps_that_are_left_when_nothing_counts_any_more_are_not_taken(worker: Worker, how: str) -> None:
    worker.in_steps = frozenset({1})
    reader = worker.read_from()
    worker.say(1, 2)
    async with asyncio.timeout(BOUND_S):
        while not worker.steps:
            await iteration()
    if how == "stopped":
        reader.stop()
    worker.closed = True
    steps = worker.steps
    for _ in range(5):
        await iteration()
    assert (worker.heard, worker.steps) == ([], steps)
    assert reader.ended


async def test_floods_of_many_workers_share_one_portion_and_a_worker_that_says_little_is_heard_at_once(
    worker: Worker,
) -> None:
    count, stack = PORTION_ITEMS * 3, contextlib.ExitStack()
    others = [stack.enter_context(piped()) for _ in range(20)]
    for other in others:
        other.read_from()
        other.say(*range(1, count + 1))
    async with asyncio.timeout(BOUND_S):
        while not all(other.heard for other in others):
            await iteration()
    worker.read_from()
    worker.say(1)
    portions, beside = [sum(len(other.heard) for other in others)], 0
    async with asyncio.timeout(BOUND_S):
        while portions[-1] < count * len(others):
            await iteration()
            portions.append(sum(len(other.heard) for other in others))
            beside = beside or (portions[-1] if worker.heard else 0)
    assert max(after - before for before, after in itertools.pairwise(portions)) <= PORTION_ITEMS
    assert beside - portions[0] <= PORTION_ITEMS * 3
    assert all(other.heard == list(range(1, count + 1)) for other in others)
    stack.close()


async def test_stop_within_a_flood_ends_it(worker: Worker) -> None:
    reader = worker.read_from()
    worker.say(*range(1, PORTION_ITEMS * 2))
    worker.close_stdout()
    async with asyncio.timeout(BOUND_S):
        while not worker.heard:
            await iteration()
    reader.stop()
    heard = len(worker.heard)
    for _ in range(5):
        await iteration()
    assert FRAMES_AT_ONCE <= heard == len(worker.heard) < PORTION_ITEMS * 2 - 1
    assert worker.ends == 0


async def test_frames_after_the_last_that_counts_are_not_handed_on(worker: Worker) -> None:
    worker.close_after = 2
    reader = worker.read_from()
    worker.say(1, 2, 3)
    async with asyncio.timeout(BOUND_S):
        while not reader.ended:
            await iteration()
    assert worker.heard == [1, 2]


@pytest.mark.parametrize("count", [2, FRAMES_AT_ONCE, FRAMES_AT_ONCE + 1, PORTION_ITEMS * 3])
async def test_last_frames_come_before_the_closed_stdout_which_is_told_once(worker: Worker, count: int) -> None:
    reader = worker.read_from()
    numbers = list(range(1, count + 1))
    worker.say(*numbers)
    worker.close_stdout()
    await worker.until_told()
    assert (worker.heard, worker.problems, worker.ends) == (numbers, [], 1)
    assert reader.ended


async def test_frame_in_pieces_is_handed_on_when_it_is_whole(worker: Worker) -> None:
    reader = worker.read_from()
    whole = frame(300)
    worker.say_bytes(whole[:2])
    async with asyncio.timeout(BOUND_S):
        while not reader.mid_frame:
            await iteration()
    assert worker.heard == []
    worker.say_bytes(whole[2:])
    async with asyncio.timeout(BOUND_S):
        while not worker.heard:
            await iteration()
    assert (worker.heard, reader.mid_frame) == ([300], False)


@pytest.mark.parametrize(
    ("data", "violation"),
    [
        (b"\xff" * 5, Violation.LENGTH_TOO_LONG),
        (b"\xff\xff\x03", Violation.FRAME_TOO_LARGE),
        (b"\x01\xff", Violation.FRAME_MALFORMED),
        (b"\x7fhalf", Violation.FRAME_STALLED),
    ],
)
async def test_bytes_that_are_no_frame_are_told_once_and_end_the_reading(
    worker: Worker, data: bytes, violation: Violation
) -> None:
    reader = worker.read_from(stall_s=0.01)
    worker.say_bytes(frame(1) + data)
    await worker.until_told()
    worker.say(2)
    worker.close_stdout()
    for _ in range(5):
        await iteration()
    assert (worker.heard, worker.problems, worker.ends) == ([1], [violation], 0)
    assert reader.ended


async def test_frame_that_is_whole_in_time_is_no_stall(worker: Worker) -> None:
    reader = worker.read_from(stall_s=1.0)  # longer than a busy machine holds up a test
    whole = frame(1)
    worker.say_bytes(whole[:1])
    async with asyncio.timeout(BOUND_S):
        while not reader.mid_frame:
            await iteration()
    worker.say_bytes(whole[1:])
    async with asyncio.timeout(BOUND_S):
        while not worker.heard:
            await iteration()
    overdue = asyncio.get_running_loop().time() + 1.1
    async with asyncio.timeout(BOUND_S):
        while asyncio.get_running_loop().time() < overdue:
            await iteration()
    assert worker.problems == []


async def test_reads_that_all_end_within_a_frame_are_no_stall_while_frames_become_whole(worker: Worker) -> None:
    reader, whole, number = worker.read_from(stall_s=2.0), frame(1), 0  # longer than a busy machine holds up a test
    end = asyncio.get_running_loop().time() + 3.0
    worker.say_bytes(whole[:1])
    async with asyncio.timeout(BOUND_S):
        while asyncio.get_running_loop().time() < end and not reader.ended:
            worker.say_bytes(whole[1:] + whole[:1])
            number += 1
            while len(worker.heard) < number and not reader.ended:
                await iteration()
    assert (worker.problems, reader.mid_frame) == ([], True)
    await worker.until_told()
    assert worker.problems == [Violation.FRAME_STALLED], "the last one never became whole"
