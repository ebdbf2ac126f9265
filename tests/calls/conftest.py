from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import orjson
import pytest
import structlog
from fumehood_server.calls import Executor
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.telemetry import configure_logging

from tests.calls.fake import FakePools, FakeTools, FakeWorker, Log, tool


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
    async with Executor(tools, pools, journal=NO_JOURNAL, max_concurrent_calls=4) as executor:
        yield executor
        assert executor.calls_in_flight == 0
    assert pools.leases == 0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """The lines of the log so far."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    library = logging.getLogger()
    before = library.handlers[:], library.level
    flush = configure_logging("info", descriptor=descriptor)

    def lines() -> list[dict[str, object]]:
        flush()
        return [orjson.loads(line) for line in path.read_bytes().splitlines()]

    yield lines
    structlog.reset_defaults()
    library.handlers[:] = before[0]
    library.setLevel(before[1])
    os.close(descriptor)
