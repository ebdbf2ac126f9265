"""The log's thread and its queue, on pipes that nobody reads for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fumehood_server.telemetry.background_writer import MAX_WAITING_BYTES, BackgroundWriter
from fumehood_server.telemetry.line_writer import LineWriter

LINE = b"x" * 1023
MANY = 2 * MAX_WAITING_BYTES // (len(LINE) + 1)


def dropped(lines: int) -> bytes:
    return b"dropped %d" % lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    yield readable, writable
    os.close(readable)
    os.close(writable)


def test_lines_that_no_reader_takes_are_dropped_and_told_of_and_handing_over_never_waits(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    writer = BackgroundWriter(writable, dropped)
    for _ in range(MANY):
        writer.add_lines([LINE])
    assert not writer.wait_written(0)
    with os.fdopen(os.dup(readable), "rb") as stream:
        kept = lost = 0
        # The thread may make room meanwhile, and lines be dropped a second time.
        while kept + lost < MANY:
            line = stream.readline().rstrip()
            if line == LINE:
                kept += 1
            else:
                lost += int(line.removeprefix(b"dropped "))
        assert kept + lost == MANY
        assert lost
        assert kept >= MANY // 2
        writer.add_lines([b"after"])
        assert stream.readline() == b"after\n"
    writer.close()


def test_a_flush_ends_though_nobody_reads_and_nothing_is_lost_by_that(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    writer = LineWriter(BackgroundWriter(writable, dropped))
    longer_than_a_pipe = b"x" * (1 << 20)
    writer.write_line(longer_than_a_pipe)
    writer.flush()
    writer.close()
    with os.fdopen(os.dup(readable), "rb") as stream:
        assert stream.readline().rstrip() == longer_than_a_pipe
