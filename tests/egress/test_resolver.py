"""The system's resolver, bounded: by the hosts file alone, so that no test asks a name server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from fumehood_server.egress import EgressFailedError, Reason
from fumehood_server.egress.resolver import SystemResolver

pytestmark = pytest.mark.promise("S803")


class _Lookups:
    """Look-ups that end when they are told to."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[list[str]]] = []

    def __call__(self, _: str) -> Awaitable[list[str]]:
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.running.append(future)
        return future

    def answer(self, *addresses: str) -> None:
        self.running.pop(0).set_result(list(addresses))


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_name_of_the_hosts_file_is_resolved() -> None:
    resolver = SystemResolver()
    assert {str(each) for each in await resolver.resolve("localhost", owner="a")} & {"127.0.0.1", "::1"}
    with pytest.raises(EgressFailedError) as failure:
        await resolver.resolve("a..b", owner="a")  # refused by the library before anything is asked
    assert failure.value.reason is Reason.NAME_NOT_RESOLVED


async def test_one_plugin_has_two_look_ups_and_all_have_four() -> None:
    lookups = _Lookups()
    resolver = SystemResolver(lookups)
    tasks = [asyncio.create_task(resolver.resolve("x.test", owner="greedy")) for _ in range(5)]
    await _settled()
    assert len(lookups.running) == 2
    others = [asyncio.create_task(resolver.resolve("y.test", owner=owner)) for owner in ("b", "c", "d")]
    await _settled()
    assert len(lookups.running) == 4
    for _ in range(8):
        lookups.answer("1.1.1.1", "1.1.1.1", "1.0.0.1")
        await _settled()
    for answer in await asyncio.gather(*tasks, *others):
        assert [str(each) for each in answer] == ["1.1.1.1", "1.0.0.1"]
    assert not resolver._running


async def test_who_stops_waiting_frees_no_slot_until_the_look_up_ends() -> None:
    lookups = _Lookups()
    resolver = SystemResolver(lookups)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(resolver.resolve("slow.test", owner="a"), 0.01)
    third = asyncio.create_task(resolver.resolve("next.test", owner="a"))
    await _settled()
    assert len(lookups.running) == 2
    lookups.answer("1.1.1.1")
    await _settled()
    assert len(lookups.running) == 2
    lookups.answer("1.1.1.1")
    lookups.answer("1.0.0.1")
    assert [str(each) for each in await third] == ["1.0.0.1"]
