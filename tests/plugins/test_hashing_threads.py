"""Before starts of workers, plugins' files are read on threads of their own, of which one plugin has one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from fumehood_server.config.load import load_config
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.store import PluginStore

from .support import ONE, TWO, FakeDescribe, LogLines, configure, executable, tool_toml

BOUND_S = 60.0
MORE_THAN_ALL_THREADS = (os.cpu_count() or 1) + 5
"""`asyncio` has four more than processors."""


class LargeCopies(PluginStore):
    """Reading a copy takes until it is let go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reading: list[str] = []
        self.is_large: set[str] = set()
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()

    def verify(self, digest: str) -> None:
        if digest in self.is_large:
            self.reading.append(digest)
            self.begun.release()
            self.go_on.wait(BOUND_S)
        super().verify(digest)


@contextlib.asynccontextmanager
async def two_plugins(folder: Path) -> AsyncIterator[tuple[Catalog, LargeCopies, WorkerSpec, WorkerSpec]]:
    """The first one is large."""
    executable(folder / "one", tool_toml("echo"))
    executable(folder / "two", tool_toml("roll"))
    copies = LargeCopies(folder / "copies")
    config = load_config(configure(folder, ONE + TWO))
    catalog = await Catalog.load(config, describe=FakeDescribe(), sources=copies, log=LogLines())
    specs = [found.spec for name in ("echo", "roll") if (found := catalog.find(name)) is not None]
    one, two = specs
    assert one is not None
    assert two is not None
    copies.is_large = {one.plugin_digest}
    try:
        yield catalog, copies, one, two
    finally:
        copies.go_on.set()


async def test_starts_of_one_large_plugin_leave_threads_to_others(tmp_path: Path) -> None:
    async with two_plugins(tmp_path) as (catalog, copies, one, two):
        starts = [asyncio.create_task(catalog.verify(one)) for _ in range(MORE_THAN_ALL_THREADS)]
        async with asyncio.timeout(BOUND_S):
            assert await catalog.verify(two) is None
            await asyncio.to_thread(copies.begun.acquire)
        assert copies.reading == [one.plugin_digest]
        copies.go_on.set()
        assert await asyncio.gather(*starts) == [None] * MORE_THAN_ALL_THREADS
    assert len(copies.reading) == MORE_THAN_ALL_THREADS


async def test_a_plugin_whose_starts_are_cancelled_reads_no_second_copy_meanwhile(tmp_path: Path) -> None:
    async with two_plugins(tmp_path) as (catalog, copies, one, two):
        for _ in range(3):
            start = asyncio.create_task(catalog.verify(one))
            await asyncio.wait([start], timeout=0)
            if not copies.reading:
                await asyncio.to_thread(copies.begun.acquire)
            start.cancel()
            await asyncio.wait([start])
            assert start.cancelled()
        last = asyncio.create_task(catalog.verify(one))
        async with asyncio.timeout(BOUND_S):
            assert await catalog.verify(two) is None
        assert len(copies.reading) == 1
        copies.go_on.set()
        assert await last is None
        assert len(copies.reading) == 2
