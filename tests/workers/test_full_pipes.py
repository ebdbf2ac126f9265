"""Pipes that their writers keep full are read by portions, each in its turn, and a pipe with little in it at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Iterator

import pytest
from fumehood_server.workers.wire.pipes import READ_BYTES, PipeReader
from fumehood_server.workers.wire.portions import PORTION_S

PIPES = 20
READS = 10
BOUND_S = 60.0


class CountingReader(PipeReader):
    """Counts what it reads, which takes half a portion each time."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.reads = 0
        self.ends = 0
        self.stop_after = 0

    def take_data(self, data: bytes) -> None:
        assert data
        self.reads += 1
        time.sleep(PORTION_S / 2)
        if self.reads == self.stop_after:
            self.stop()

    def take_end(self) -> None:
        self.ends += 1


@contextlib.contextmanager
def piped() -> Iterator[tuple[CountingReader, int]]:
    """A reader, and the writer's end. The pipe holds `READ_BYTES`."""
    ours, theirs = os.pipe()
    for fd in (ours, theirs):
        os.set_blocking(fd, False)
    reader = CountingReader(ours)
    try:
        yield reader, theirs
    finally:
        reader.stop()
        os.close(ours)
        os.close(theirs)


async def iteration() -> None:
    await asyncio.sleep(0)


def fill(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.write(fd, bytes(READ_BYTES))


async def test_full_pipes_take_turns_and_one_with_little_in_it_is_read_beside_them() -> None:
    with contextlib.ExitStack() as stack:
        full = [stack.enter_context(piped()) for _ in range(PIPES)]
        little, writable = stack.enter_context(piped())
        little.resume()
        for reader, _ in full:
            reader.resume()
        seen, waited = list[int](), list[int]()
        async with asyncio.timeout(BOUND_S):
            while min(reader.reads for reader, _ in full) < READS:
                for _, end in full:
                    fill(end)
                if little.reads == len(waited):
                    os.write(writable, b"a line")
                    written = len(seen)
                await iteration()
                seen.append(sum(reader.reads for reader, _ in full))
                if little.reads > len(waited):
                    waited.append(len(seen) - written)
    counts = [reader.reads for reader, _ in full]
    assert max(counts) - min(counts) <= 1, counts
    portions = [after - before for before, after in itertools.pairwise(seen) if before >= PIPES]
    assert max(portions) <= 2, "all of them were read at first, when nobody knew"
    assert max(waited) <= 2, "the kernel tells of it in one iteration, and it is read in the next"


@pytest.mark.parametrize("how", ["paused", "stopped", "stops itself"])
async def test_reader_that_is_paused_or_stopped_within_its_turns_reads_no_more(how: str) -> None:
    with piped() as (reader, end):
        reader.resume()
        reader.stop_after = 3 if how == "stops itself" else 0
        async with asyncio.timeout(BOUND_S):
            while reader.reads < 3:
                fill(end)
                await iteration()
        if how == "paused":
            reader.pause()
        elif how == "stopped":
            reader.stop()
        reads = reader.reads
        fill(end)
        for _ in range(5):
            await iteration()
        assert reader.reads == reads
        reader.resume()
        async with asyncio.timeout(BOUND_S):
            for _ in range(5):
                await iteration()
            while how == "paused" and reader.reads == reads:
                await iteration()
        assert (reader.reads > reads) == (how == "paused")


async def test_end_of_a_pipe_that_was_full_is_told_once() -> None:
    ours, theirs = os.pipe()
    for fd in (ours, theirs):
        os.set_blocking(fd, False)
    reader = CountingReader(ours)
    reader.resume()
    async with asyncio.timeout(BOUND_S):
        while reader.reads < 3:
            fill(theirs)
            await iteration()
    os.close(theirs)
    async with asyncio.timeout(BOUND_S):
        while not reader.ends:
            await iteration()
    for _ in range(5):
        await iteration()
    assert (reader.ends, reader.ended) == (1, True)
    os.close(ours)
