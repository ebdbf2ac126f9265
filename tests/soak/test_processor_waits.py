"""What the soak takes off a call: moments without a processor, each counted once."""

from __future__ import annotations

import os
import time

from tests.soak.processor_waits import RunDelays, merged, threads_of


def test_moments_in_which_several_threads_wait_count_once() -> None:
    assert merged([(5.0, 6.0), (1.0, 2.0), (1.5, 3.0), (3.0, 3.5)]) == [(1.0, 3.5), (5.0, 6.0)]


def test_only_what_lies_within_a_call_is_taken_off_it() -> None:
    delays = RunDelays()
    delays._found = [(1.0, 2.0), (1.5, 3.0), (5.0, 6.0)]
    assert delays.within(2.5, 5.25) == 0.75
    assert delays.within(0.0, 10.0) == 3.0
    assert delays.within(3.0, 5.0) == 0.0


def test_a_process_that_never_waits_has_nothing_taken_off() -> None:
    delays = RunDelays()
    threads = threads_of([os.getpid()])
    assert f"/proc/{os.getpid()}/task/{os.getpid()}" in threads
    delays.sample(threads)
    assert delays.within(0.0, time.time() + 1) == 0.0
    delays.sample(["/proc/0/task/0"])  # one that has ended


def test_an_hour_of_delays_is_not_looked_at_again_for_each_call() -> None:
    delays = RunDelays()
    delays._found = [(number / 50, number / 50 + 0.001) for number in range(100_000)]
    begun = time.process_time()
    for number in range(2_000):
        at = 2_000 + number / 50
        delays._found.append((at, at + 0.001))
        assert abs(delays.within(at - 0.01, at + 0.01) - 0.001) < 1e-6
    assert time.process_time() - begun < 10, "merging all of them for each takes minutes"
