"""A stream that a thread reads: in order, none ahead, cancelled by whoever leaves, and never read where Ctrl-C is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from fumehood_server.cli.threaded_stream import read_by_thread

BOUND_S = 10.0


class Numbers:
    """A stream of so many numbers, that then raises, ends, or says nothing until it is cancelled."""

    def __init__(self, count: int, error: Exception | None = None, *, stays: bool = False) -> None:
        self.count, self.error, self.stays = count, error, stays
        self.read: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.cancelled = threading.Event()

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.threads.add(threading.current_thread())
            self.read.append(number)
            yield number
        if self.stays:
            self.cancelled.wait(BOUND_S)
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        self.cancelled.set()


def test_all_is_yielded_in_order_and_none_is_read_by_the_thread_that_asks() -> None:
    numbers = Numbers(1000)
    assert [*read_by_thread(lambda: numbers)] == [*range(1000)]
    (thread,) = numbers.threads
    assert thread is not threading.current_thread()
    thread.join(BOUND_S)
    assert not thread.is_alive()


def test_none_is_read_before_it_is_asked_for() -> None:
    numbers = Numbers(1000)
    stream = read_by_thread(lambda: numbers)
    assert [next(stream), next(stream)] == [0, 1]
    time.sleep(0.05)
    assert numbers.read == [0, 1]
    stream.close()
    assert numbers.cancelled.is_set()


def test_what_the_stream_raises_is_raised_behind_what_it_yielded() -> None:
    stream = read_by_thread(lambda: Numbers(1, ValueError("broken")))
    assert next(stream) == 0
    with pytest.raises(ValueError, match="broken"):
        next(stream)


def test_what_beginning_raises_is_raised() -> None:
    def begin() -> Numbers:
        raise ValueError("no stream")

    with pytest.raises(ValueError, match="no stream"):
        next(read_by_thread(begin))


def test_interrupt_ends_the_wait_and_cancels_the_stream() -> None:
    numbers = Numbers(1, stays=True)
    stream = read_by_thread(lambda: numbers)
    assert next(stream) == 0
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert time.monotonic() - begun < BOUND_S / 2
    assert numbers.cancelled.is_set()
    timer.join()


def test_stream_that_begins_only_after_everybody_left_is_cancelled() -> None:
    numbers, may_begin, waits = Numbers(1, stays=True), threading.Event(), threading.Event()

    def begin() -> Numbers:
        waits.set()
        may_begin.wait(BOUND_S)
        return numbers

    stream = read_by_thread(begin)
    timer = threading.Timer(0.1, lambda: (waits.wait(BOUND_S), os.kill(os.getpid(), signal.SIGINT)))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert not numbers.cancelled.is_set()
    may_begin.set()
    assert numbers.cancelled.wait(BOUND_S)
    timer.join()
