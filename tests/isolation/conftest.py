"""Pools of workers for one call each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fumehood_server.workers import LogSink, Pools

from .bench import BOUND_S, SETTINGS, Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)
