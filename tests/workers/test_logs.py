"""What a plugin says, kept in bounded memory and made safe to show."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from types import FrameType

import pytest
from fumehood_server.token_bucket import TokenBucket
from fumehood_server.workers.output.log_rate import LogRate
from fumehood_server.workers.output.logs import MAX_KEPT_BYTES, MAX_LINES, LogLine, LogSink, clean
from fumehood_server.workers.output.stderr import LINES_AT_STOP, StderrLines, StderrReader
from fumehood_server.workers.wire.messages import MAX_LINE_BYTES
from fumehood_server.workers.wire.portions import PORTION_ITEMS
from hypothesis import given
from hypothesis import strategies as st

UNLIMITED = LogRate(limit_bytes=1 << 40, clock=lambda: 0.0, on_over=lambda _: None)


def lines_of(data: list[bytes], *, burst: int = 1000) -> list[LogLine]:
    log = LogSink().of("p")
    stderr = StderrLines(log, "w", TokenBucket(burst=burst, per_second=0.0, clock=lambda: 0.0), UNLIMITED)
    for piece in data:
        stderr.take_lines(piece, 0, len(piece))
    stderr.close()
    return list(log.last(10_000))


@given(st.text())
def test_a_line_never_holds_controls_and_is_never_too_long(text: str) -> None:
    safe = clean(text * 3)
    assert len(safe.encode()) <= MAX_LINE_BYTES
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in safe)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("Grüße, 世界 🎲", "Grüße, 世界 🎲"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\rb\tc", "a\\rb\\tc"),
        ("left\u202eright", "left\\u202eright"),
        ("C:\\temp", "C:\\temp"),
    ],
)
def test_controls_are_escaped_and_nothing_else(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_a_line_of_controls_alone_is_escaped_by_one_call() -> None:
    calls = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        shown = clean("\x00" * MAX_LINE_BYTES)
    finally:
        sys.setprofile(None)
    assert shown == "\\x00" * (MAX_LINE_BYTES // 4)
    assert calls < 50


async def test_the_lines_of_one_read_are_logged_by_portions_and_all_at_the_end() -> None:
    lines = 1000
    log = LogSink().of("p")
    ends: list[int] = []
    stderr = StderrLines(log, "w", TokenBucket(burst=lines, per_second=0.0, clock=lambda: 0.0), UNLIMITED)
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    reader = StderrReader(ours, stderr, lambda: ends.append(1))
    reader.resume()
    os.write(theirs, b"".join(b"%d\n" % number for number in range(lines)))
    os.close(theirs)
    seen = [0]
    async with asyncio.timeout(20):
        while not ends:
            await asyncio.sleep(0)
            seen.append(len(log.last(lines)))
    os.close(ours)
    assert [line.message for line in log.last(lines)] == [str(number) for number in range(lines)]
    assert max(after - before for before, after in itertools.pairwise(seen)) <= PORTION_ITEMS


@pytest.mark.parametrize("lines", [100, 500])
async def test_a_reader_that_is_stopped_logs_the_last_lines_that_it_read_and_counts_the_others(lines: int) -> None:
    log = LogSink().of("p")
    stderr = StderrLines(log, "w", TokenBucket(burst=1000, per_second=0.0, clock=lambda: 0.0), UNLIMITED)
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    reader = StderrReader(ours, stderr, lambda: None)
    reader.resume()
    os.write(theirs, b"".join(b"%d\n" % number for number in range(lines)))
    async with asyncio.timeout(20):
        while not log.last(1):  # noqa: ASYNC110 - the log tells of new lines by subscription alone
            await asyncio.sleep(0)
    before = len(log.last(1000))
    reader.stop()
    logged = log.last(1000)
    assert before < len(logged) <= before + LINES_AT_STOP
    assert [line.message for line in logged[before:]] == [str(number) for number in range(lines)][
        before - len(logged) :
    ]
    assert len(logged) + sum(line.dropped for line in logged) == lines
    os.close(ours)
    os.close(theirs)


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"."))), st.integers(1, 50))
def test_lines_are_the_same_however_the_stream_is_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [line.message for line in lines_of(pieces)] == [line.message for line in lines_of([stream])]
    assert len(lines_of(pieces)) == len(lines)


def test_the_end_of_a_long_line_is_cut_and_that_is_told() -> None:
    (line,) = lines_of([b"x" * 5000, b"y" * 5000, b"z" * 100_000, b"\n"])
    assert len(line.message.encode()) <= MAX_LINE_BYTES
    assert line.message.endswith("(cut)")


def test_a_line_without_an_end_is_told_when_the_stream_ends() -> None:
    assert [line.message for line in lines_of([b"one\ntw", b"o"])] == ["one", "two"]


def test_bytes_that_are_not_text_are_escaped() -> None:
    assert lines_of([b"\xff\xfe ok\n"])[0].message == "\\xff\\xfe ok"


def test_what_is_over_the_rate_is_counted() -> None:
    lines = lines_of([b"a\nb\nc\nd\n", b"e\nf\n"], burst=2)
    assert [(line.source, line.message, line.dropped) for line in lines] == [
        ("stderr", "a", 0),
        ("stderr", "b", 0),
        ("sidecar", "4 lines of stderr were dropped", 4),
    ]


def test_only_the_last_lines_are_kept() -> None:
    log = LogSink().of("p")
    for number in range(MAX_LINES + 10):
        log.write("log", "info", str(number))
    assert [line.message for line in log.last(2)] == [str(MAX_LINES + 8), str(MAX_LINES + 9)]
    assert len(log.last(10_000)) == MAX_LINES
    for _ in range(MAX_LINES):
        log.write("log", "info", "x" * MAX_LINE_BYTES)
    assert sum(len(line.message) for line in log.last(10_000)) <= MAX_KEPT_BYTES


def test_every_line_is_forwarded_with_its_plugin() -> None:
    seen: list[tuple[str, str]] = []
    sink = LogSink(lambda plugin, line: seen.append((plugin, line.message)))
    sink.of("a").write("log", "info", "one")
    sink.of("b").write("log", "info", "two")
    assert seen == [("a", "one"), ("b", "two")]
    assert sink.of("a") is sink.of("a")


async def test_a_listener_gets_new_lines_in_order() -> None:
    log = LogSink().of("p")
    log.write("log", "info", "before")
    lines = log.subscribe()
    log.write("log", "info", "one")
    log.write("log", "info", "two")
    async with asyncio.timeout(10):
        assert [(await anext(lines)).message for _ in range(2)] == ["one", "two"]
        waiting, gone = (asyncio.ensure_future(anext(lines)) for lines in (lines, log.subscribe()))
        await asyncio.wait((waiting, gone), timeout=0)
        gone.cancel()
        await asyncio.wait((gone,))
        log.write("log", "info", "three")
        assert (await waiting).message == "three"


async def test_a_slow_listener_loses_the_oldest_lines_and_learns_how_many() -> None:
    log = LogSink().of("p")
    log.write("log", "info", "before", dropped=100)
    lines = log.subscribe()
    for number in range(MAX_LINES + 7):
        log.write("log", "info", str(number), dropped=number == 2)
    async with asyncio.timeout(10):
        taken = [await anext(lines) for _ in range(MAX_LINES)]
    assert [int(line.message) for line in taken] == list(range(7, MAX_LINES + 7))
    assert [line.dropped for line in taken] == [8] + [0] * (MAX_LINES - 1)


def test_a_line_costs_the_same_however_many_listen() -> None:
    log = LogSink().of("p")
    listeners = [log.subscribe() for _ in range(3000)]
    before = sys.getallocatedblocks()
    for number in range(1500):
        log.write("log", "info", str(number))
    assert sys.getallocatedblocks() - before < 10 * MAX_LINES
    assert len(listeners) == 3000


def test_the_rate_of_logging_is_counted_second_by_second() -> None:
    now, over = [0.0], list[int]()
    rate = LogRate(limit_bytes=100, clock=lambda: now[0], on_over=over.append)
    rate.count(100)
    now[0] = 1.0
    rate.count(60)
    now[0] = 1.9
    rate.count(40)
    assert over == []
    rate.count(1)
    assert over == [101]
