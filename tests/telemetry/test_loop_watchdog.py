"""The watchdog of the event loop: what holds the loop up is measured, and told with the culprit."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from fumehood_server.telemetry.loop_watchdog import LoopFigures, LoopWatchdog

BOUND_S = 30.0
HELD_UP_S = 0.4
SUBJECT = "a" * 27 + "!"


def blocks() -> None:
    time.sleep(HELD_UP_S)  # the fault itself


def computes() -> None:
    end = time.process_time() + HELD_UP_S
    while time.process_time() < end:
        pass


def keeps_the_lock() -> None:
    end = time.process_time() + HELD_UP_S
    while time.process_time() < end:
        re.fullmatch("(a+)+", SUBJECT[7:])


Told = list[tuple[float, str, int]]


async def watched(step: Callable[[], None] | None) -> tuple[Told, LoopFigures]:
    """What was told, and what was measured, of a loop that ran `step`, or else only short ones, until it was told."""
    told: Told = []
    first = asyncio.Event()

    def log(*line: Any) -> None:
        told.append(line)
        first.set()

    watchdog = LoopWatchdog(log)
    with watchdog.watching():
        async with asyncio.timeout(BOUND_S):
            if step is None:
                for _ in range(300):
                    await asyncio.sleep(0.001)
            else:
                asyncio.get_running_loop().call_soon(step)
                await first.wait()
    return told, watchdog.figures


@pytest.mark.parametrize("step", [blocks, computes, keeps_the_lock])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_step_that_holds_up_the_loop_is_told_with_its_culprit(
    step: Callable[[], None], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        told, figures = runner.run(watched(step))
    ((held_up_s, culprit, count),) = told
    assert f"{step.__name__} (tests/telemetry/test_loop_watchdog.py:" in culprit
    assert held_up_s > HELD_UP_S / 2
    assert count == 1
    assert figures.longest_s >= held_up_s
    assert figures.over_20_ms >= figures.over_100_ms >= 1


def test_short_steps_name_no_culprit() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told, _ = runner.run(watched(None))
    assert [line for line in told if "test_loop_watchdog" in line[1]] == []
