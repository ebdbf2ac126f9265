"""One piece computes at a time, whoever is cancelled; callers take turns; there is a rest after each."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from fumehood_server.calls.paced_thread import PacedThread

BOUND_S = 60.0


class Pieces:
    """What was computed, and whether ever two pieces were at once."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.overlapped = False
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self._one = threading.Lock()

    def piece(self, name: str) -> str:
        if not self._one.acquire(blocking=False):
            self.overlapped = True
            return name
        self.begun.set()
        self.go_on.wait(BOUND_S)
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        self.order.append(name)
        self._one.release()
        return name


async def test_callers_take_turns_whatever_each_has_queued() -> None:
    thread, pieces = PacedThread(), Pieces()

    def run(caller: str, tool: str) -> asyncio.Task[str]:
        return asyncio.create_task(thread.run((caller, tool), lambda: pieces.piece(f"{caller}/{tool}")))

    tasks = [run("flood", str(number % 2)) for number in range(20)] + [run("other", "2") for _ in range(2)]
    async with asyncio.timeout(BOUND_S):
        answers = await asyncio.gather(*tasks)
    assert not pieces.overlapped
    assert pieces.order[:5] == ["flood/0", "flood/1", "other/2", "flood/0", "other/2"]
    assert sorted(answers) == sorted(pieces.order)


async def test_cancelled_pieces_leave_no_second_one_running_and_hold_up_nobody() -> None:
    thread, pieces = PacedThread(), Pieces()

    def run(name: str) -> asyncio.Task[str]:
        return asyncio.create_task(thread.run(("one",), lambda: pieces.piece(name)))

    pieces.go_on.clear()
    early, late = [run(f"early {number}") for number in range(15)], [run(f"late {number}") for number in range(15)]
    async with asyncio.timeout(BOUND_S):
        await asyncio.to_thread(pieces.begun.wait, BOUND_S)
        for task in early:  # the first of which computes
            task.cancel()
            await asyncio.sleep(0.0005)
        pieces.go_on.set()
        for task in late:  # as they wait, compute or have done so
            await asyncio.sleep(0.0005)
            task.cancel()
        ends = await asyncio.gather(*early, *late, return_exceptions=True)
        assert await thread.run(("other",), lambda: pieces.piece("last")) == "last"
    assert all(isinstance(end, asyncio.CancelledError) for end in ends[: len(early)])
    assert not pieces.overlapped
    assert [each for each in pieces.order if each.startswith("early")] == ["early 0"]
    assert {end for end in ends if isinstance(end, str)} <= set(pieces.order)
    assert not [end for end in ends if not isinstance(end, asyncio.CancelledError | str)]


async def test_what_it_raises_is_told_and_the_next_piece_runs_after_a_rest() -> None:
    thread = PacedThread()
    ended: list[float] = []

    def fails() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        ended.append(time.monotonic())
        raise ValueError("wrong")

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(ValueError, match="wrong"):
            await thread.run(("one",), fails)
        begun = await thread.run(("one",), time.monotonic)
    assert begun - ended[0] > 0.04
