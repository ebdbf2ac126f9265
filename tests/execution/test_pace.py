"""When the sidecar's threads are gathered on one processor: by a clock of the test's own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from fumehood_server.execution import Executor, pace
from fumehood_server.execution.pace import FEWEST_LONE_CALLS, MOST_LONE_CALLS, QUICK_S, REST_S, SLOW_LONE_CALLS, Pace

from tests.execution.fake import FakePools, FakeTools, FakeWorker, request

_REST_S = REST_S * 4
_QUICK_S = QUICK_S / 4


@dataclass
class Threads:
    """Stands for the threads and the clock. Calls come one after another unless it is said otherwise."""

    subject: Pace
    now: float = 100.0
    gathered: bool = False
    gatherings: int = 0

    def gather(self) -> None:
        self.gathered = True
        self.gatherings += 1

    def part(self) -> None:
        self.gathered = False

    def is_shared(self) -> bool:
        return self.gathered

    def call(self, *, rest_s: float = _REST_S, takes_s: float = _QUICK_S, in_flight: int = 1) -> None:
        self.now += rest_s
        self.subject.began(in_flight)
        self.now += takes_s
        self.subject.ended()

    def calls(self, count: int) -> int:
        """How many of them found the threads gathered."""
        found = 0
        for _ in range(count):
            self.call()
            found += self.gathered
        return found


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    made = Threads(Pace())
    monkeypatch.setattr(pace, "one_processor", made)
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


async def test_threads_are_gathered_for_quick_calls_one_after_another(threads: Threads) -> None:
    assert threads.calls(FEWEST_LONE_CALLS - 1) == 0
    assert threads.calls(100) == 100
    assert threads.gatherings == 1


async def test_calls_beside_each_other_part_them_at_once(threads: Threads) -> None:
    threads.calls(FEWEST_LONE_CALLS)
    assert threads.gathered, "control"
    threads.call(in_flight=2)
    assert not threads.gathered


async def test_call_without_a_rest_is_one_of_many(threads: Threads) -> None:
    threads.calls(FEWEST_LONE_CALLS)
    threads.call(rest_s=REST_S / 2)
    assert not threads.gathered
    for _ in range(FEWEST_LONE_CALLS * 4):
        threads.call(rest_s=REST_S / 2)
    assert not threads.gathered
    threads.calls(FEWEST_LONE_CALLS * 2)
    assert threads.gathered, "control: the same with a rest"


async def test_slow_call_now_and_then_parts_nobody(threads: Threads) -> None:
    threads.calls(MOST_LONE_CALLS)
    for _ in range(20):
        threads.call(takes_s=QUICK_S * 2)
        assert threads.calls(SLOW_LONE_CALLS) == SLOW_LONE_CALLS
    assert threads.gatherings == 1


async def test_slow_calls_in_a_row_part_them_and_gather_nobody(threads: Threads) -> None:
    threads.calls(MOST_LONE_CALLS)
    assert threads.gathered, "control"
    threads.call(takes_s=QUICK_S * 2)
    threads.call(takes_s=QUICK_S * 2)
    assert not threads.gathered
    for _ in range(FEWEST_LONE_CALLS * 4):
        threads.call(takes_s=QUICK_S * 2)
    assert threads.gatherings == 1


async def test_one_who_was_parted_is_gathered_again(threads: Threads) -> None:
    for _ in range(20):
        assert threads.calls(FEWEST_LONE_CALLS) == 1
        threads.call(in_flight=2)
        assert not threads.gathered
    assert threads.gatherings == 20


async def test_threads_are_let_go_now_and_then_and_when_nobody_calls(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "HOLD_S", 0.02)
    for _ in range(3):
        assert threads.calls(FEWEST_LONE_CALLS) == 1
        async with asyncio.timeout(20):
            while threads.gathered:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
    assert threads.gatherings == 3


async def test_threads_that_were_parted_for_a_start_are_gathered_by_the_next_call(threads: Threads) -> None:
    threads.calls(FEWEST_LONE_CALLS)
    threads.part()
    assert threads.calls(10) == 10
    assert threads.gatherings == 2


async def test_threads_are_let_go_at_the_end(threads: Threads) -> None:
    threads.calls(FEWEST_LONE_CALLS)
    assert threads.gathered, "control"
    threads.subject.close()
    assert not threads.gathered
    threads.subject.close()


async def test_executor_tells_of_each_call_and_lets_the_threads_go_at_its_end(threads: Threads) -> None:
    async with Executor(FakeTools(()), FakePools(worker=FakeWorker()), max_concurrent_calls=4) as executor:
        for number in range(FEWEST_LONE_CALLS):
            assert not threads.gathered
            threads.now += _REST_S
            outcome = await executor.call(request(call_id=f"call-{number}"))
            assert outcome.error is not None, "there is no tool, which is as good for this"
        assert threads.gathered
    assert not threads.gathered
