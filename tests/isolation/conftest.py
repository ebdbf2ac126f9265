"""Pools of workers for one call each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fumehood_server.workers import LogSink, Pools

from .bench import BOUND_S, SETTINGS, Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Bench]:
    """For tests that end no process but those of their own calls."""
    logs = LogSink()
    async with Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)
