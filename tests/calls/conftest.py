from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fumehood_server.calls import Executor

from tests.calls.fake import FakePools, FakeTools, FakeWorker, tool


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def pools(worker: FakeWorker) -> FakePools:
    return FakePools(worker=worker)


@pytest.fixture
def tools() -> FakeTools:
    return FakeTools((tool(),))


@pytest.fixture
async def executor(tools: FakeTools, pools: FakePools) -> AsyncIterator[Executor]:
    async with Executor(tools, pools, max_concurrent_calls=4) as executor:
        yield executor
        assert executor.calls_in_flight == 0
    assert pools.leases == 0
