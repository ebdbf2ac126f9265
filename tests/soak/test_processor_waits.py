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
