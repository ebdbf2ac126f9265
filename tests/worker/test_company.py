"""Calls' frames that wait for each other: how long they do, and how they are written."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fumehood_server.worker import pipes
from fumehood_server.worker.company import (
    FEWEST_CALLS,
    FEWEST_TURNS,
    FIRST_TURNS,
    LONGEST_WAIT_S,
    MOST_FRAMES,
    MOST_TURNS,
    REMEMBERED_FRAMES,
    TRIED_FRAMES,
    UNTRIED_FRAMES,
    Company,
)
from fumehood_server.worker.pipes import PipeWriter

BOUND_S = 20.0


def test_lone_call_waits_for_nobody() -> None:
    subject = Company()
    assert {subject.turns(1) for _ in range(1000)} == {0}


def test_crowd_is_waited_for_until_it_was_not_seen_for_long() -> None:
    subject = Company()
    assert subject.turns(FEWEST_CALLS) == FIRST_TURNS
    assert {subject.turns(1) for _ in range(REMEMBERED_FRAMES)} == {FIRST_TURNS}
    assert subject.turns(1) == 0


def test_with_two_callers_waiting_is_tried_now_and_then() -> None:
    subject = Company()
    assert {subject.turns(2) for _ in range(TRIED_FRAMES)} == {FIRST_TURNS}
    rounds = [subject.turns(2) for _ in range(10 * (TRIED_FRAMES + UNTRIED_FRAMES))]
    assert sum(turns > 1 for turns in rounds) <= 10 * (TRIED_FRAMES + 1)
    assert 1 in rounds
    assert subject.turns(FEWEST_CALLS) == FIRST_TURNS, "control"


def test_wait_is_as_long_as_others_took_to_come() -> None:
    subject = Company()
    for last in range(1000):
        subject.learn(last)
        assert subject.turns(FEWEST_CALLS) <= MOST_TURNS
    assert subject.turns(FEWEST_CALLS) == MOST_TURNS
    for _ in range(100):
        subject.learn(0)
    assert subject.turns(FEWEST_CALLS) == FEWEST_TURNS
    subject.learn(10)
    assert subject.turns(FEWEST_CALLS) == 20


@dataclass
class Pipe:
    """A writer, and the other end."""

    ours: int
    theirs: int
    broken: bool = False
    writer: PipeWriter | None = None

    def open(self) -> PipeWriter:
        self.writer = PipeWriter(asyncio.get_running_loop(), self.ours, self._on_broken)
        return self.writer

    def _on_broken(self) -> None:
        self.broken = True

    def read(self) -> bytes:
        try:
            return os.read(self.theirs, 1 << 16)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    theirs, ours = os.pipe()
    for fd in (theirs, ours):
        os.set_blocking(fd, False)
    made = Pipe(ours, theirs)
    yield made
    if made.writer is not None:
        made.writer.stop()
    os.close(ours)
    os.close(theirs)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait ends by the clock: a machine may be busy."""
    monkeypatch.setattr(pipes, "LONGEST_WAIT_S", BOUND_S)


async def turn() -> None:
    await asyncio.sleep(0)


@pytest.mark.usefixtures("patient")
async def test_frames_go_out_together_at_the_end_of_the_wait(pipe: Pipe) -> None:
    told: list[int] = []
    writer = pipe.open()
    writer.on_together = told.append
    writer.send(b"a", turns=5)
    for _ in range(3):
        await turn()
    assert pipe.read() == b""
    writer.send(b"b", turns=5)
    await turn()
    assert (pipe.read(), told) == (b"", []), "the wait is the first one's"
    await turn()
    assert (pipe.read(), told) == (b"ab", [3])
    writer.send(b"c", turns=0)
    assert pipe.read() == b"c", "control: who waits for nobody"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("turns", [0, 1])
async def test_frame_that_can_not_wait_takes_all_others_along_in_order(pipe: Pipe, turns: int) -> None:
    writer = pipe.open()
    writer.send(b"a", turns=50)
    await turn()
    writer.send(b"cancel a", turns=turns)
    await turn()
    assert pipe.read() == b"acancel a"


@pytest.mark.usefixtures("patient")
async def test_many_frames_wait_for_nobody(pipe: Pipe) -> None:
    writer = pipe.open()
    for _ in range(MOST_FRAMES - 1):
        writer.send(b"a", turns=50)
    await turn()
    assert pipe.read() == b"", "control"
    writer.send(b"a", turns=50)
    await turn()
    assert pipe.read() == b"a" * MOST_FRAMES


async def test_no_frame_waits_for_long_in_slow_turns(pipe: Pipe) -> None:
    writer = pipe.open()
    writer.send(b"a", turns=50)
    time.sleep(LONGEST_WAIT_S * 2)  # noqa: ASYNC251 - a turn of the loop that takes long
    await turn()
    assert pipe.read() == b"a"


@pytest.mark.usefixtures("patient")
async def test_nothing_is_written_or_told_after_the_end(pipe: Pipe) -> None:
    told: list[int] = []
    writer = pipe.open()
    writer.on_together = told.append
    writer.send(b"a", turns=5)
    await turn()
    writer.stop()
    for _ in range(10):
        await turn()
    assert (pipe.read(), told, pipe.broken) == (b"", [], False)


@pytest.mark.usefixtures("patient")
async def test_frames_that_wait_break_with_the_pipe(pipe: Pipe) -> None:
    theirs = pipe.theirs
    writer = pipe.open()
    writer.send(b"a", turns=3)
    os.close(theirs)
    pipe.theirs = os.open(os.devnull, os.O_RDONLY)
    for _ in range(5):
        await turn()
    assert pipe.broken
