"""A misbehaving plugin in the real sandbox, beside an honest one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fumehood_server.workers import LogSink, Pools

from .bench import BOUND_S, SETTINGS, Bench, processes


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2):
        async with Pools(logs, SETTINGS) as pools:
            bench = Bench(pools, logs)
            await bench.honest()
            yield bench
            if not bench.closed:
                await bench.honest()
        assert bench.left() == []
        assert processes("honest" + bench.token[::-1]) == []
