"""The system's resolver, bounded: by the hosts file alone, so that no test asks a name server."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time

import pytest
from fumehood_server.egress import EgressError, EgressFailedError, EgressRefusedError, Reason
from fumehood_server.egress.resolver import SystemResolver

pytestmark = pytest.mark.promise("S803")

BOUND_S = 60.0


class _Lookups:
    """Look-ups that end when they are told to, each in the thread that it was given."""

    def __init__(self) -> None:
        self.running = 0
        self._begun: asyncio.Queue[None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._answers: queue.Queue[list[str]] = queue.Queue()

    def __call__(self, name: str) -> list[str]:
        if name == "quick.test":
            return ["1.1.1.1"]
        self._loop.call_soon_threadsafe(self._begin)
        return self._answers.get(timeout=BOUND_S)

    def _begin(self) -> None:
        self.running += 1
        self._begun.put_nowait(None)

    async def begun(self, count: int) -> None:
        async with asyncio.timeout(BOUND_S):
            for _ in range(count):
                await self._begun.get()

    def answer(self, *addresses: str) -> None:
        self.running -= 1
        self._answers.put(list(addresses))


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_name_of_the_hosts_file_is_resolved() -> None:
    resolver = SystemResolver()
    found = await resolver.resolve("localhost", owner="a", timeout_s=BOUND_S)
    assert {str(each) for each in found} & {"127.0.0.1", "::1"}
    with pytest.raises(EgressFailedError) as failure:
        await resolver.resolve("a..b", owner="a", timeout_s=BOUND_S)  # the library refuses it before anything is asked
    assert failure.value.reason is Reason.NAME_NOT_RESOLVED


async def test_plugins_with_slow_names_have_two_look_ups_each_and_nobody_waits_for_them() -> None:
    lookups = _Lookups()
    resolver = SystemResolver(lookups)
    tasks = [
        asyncio.create_task(resolver.resolve("slow.test", owner=owner, timeout_s=BOUND_S))
        for owner in ("a", "b", "c", "d", "e")
        for _ in range(3)
    ]
    await lookups.begun(10)
    quick = await resolver.resolve("quick.test", owner="f", timeout_s=BOUND_S)
    assert [str(each) for each in quick] == ["1.1.1.1"]
    await _settled()
    assert lookups.running == 10
    for _ in range(15):
        lookups.answer("1.1.1.1", "1.1.1.1", "1.0.0.1")
    for answer in await asyncio.gather(*tasks):
        assert [str(each) for each in answer] == ["1.1.1.1", "1.0.0.1"]


async def test_who_stops_waiting_frees_no_place_until_the_look_up_ends() -> None:
    lookups = _Lookups()
    resolver = SystemResolver(lookups)
    for _ in range(2):
        with pytest.raises(EgressFailedError) as failure:
            await resolver.resolve("slow.test", owner="a", timeout_s=0.01)
        assert failure.value.reason is Reason.NAME_NOT_RESOLVED
    await lookups.begun(2)
    third = asyncio.create_task(resolver.resolve("slow.test", owner="a", timeout_s=BOUND_S))
    await _settled()
    assert lookups.running == 2
    lookups.answer("1.1.1.1")
    await lookups.begun(1)
    assert lookups.running == 2
    lookups.answer("1.0.0.1")
    lookups.answer("1.0.0.1")
    assert [str(each) for each in await third] == ["1.0.0.1"]


async def test_a_look_up_without_a_place_is_refused_as_one_of_too_many() -> None:
    lookups = _Lookups()
    resolver = SystemResolver(lookups)

    async def reason(timeout_s: float) -> Reason:
        with pytest.raises(EgressError) as error:
            await resolver.resolve("slow.test", owner="a", timeout_s=timeout_s)
        assert isinstance(error.value, EgressRefusedError)
        assert error.value.retryable
        return error.value.reason

    under_way = [
        asyncio.create_task(resolver.resolve("slow.test", owner="a", timeout_s=BOUND_S)) for _ in range(2 + 64)
    ]
    await lookups.begun(2)
    assert await reason(BOUND_S) is Reason.TOO_MANY_LOOKUPS, "at once: 64 wait already"
    for task in under_way[2:]:
        task.cancel()
    await asyncio.wait(under_way[2:])
    assert await reason(0.01) is Reason.TOO_MANY_LOOKUPS, "control: one that may wait, in vain"
    for _ in range(2):
        lookups.answer("1.1.1.1")
    await asyncio.gather(*under_way[:2])
    assert await resolver.resolve("quick.test", owner="a", timeout_s=BOUND_S)


async def test_the_loop_does_not_wait_until_a_look_ups_thread_runs() -> None:
    resolver, ended = SystemResolver(lambda _name: ["1.1.1.1"]), threading.Event()
    before_s = sys.getswitchinterval()

    def computes() -> None:
        while not ended.is_set():
            pass

    busy = threading.Thread(target=computes)
    busy.start()
    try:
        sys.setswitchinterval(0.5)  # so long another thread has the interpreter that this one has let go of
        answers, took_s = [], []
        for owner in "abcde":
            begun = time.monotonic()
            answers.append(resolver._begin("quick.test", resolver._owners[owner]))
            took_s.append(time.monotonic() - begun)
    finally:
        ended.set()
        sys.setswitchinterval(before_s)
    busy.join()
    assert min(took_s) < 0.4
    assert await asyncio.gather(*answers) == [["1.1.1.1"]] * 5
