"""The watchdog of the event loop: what holds the loop up is measured, and told with the culprit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from fumehood_server.telemetry.loop_watchdog import LoopFigures, LoopWatchdog

BOUND_S = 60.0
TOLD_S = 5.0
"""The longest from a step to what is told of it."""
LAUNCH = """
import asyncio, sys, time
from pathlib import Path
from fumehood_server.app import serve
from fumehood_server.config import load_config

def hold_up_the_loop(targets):
    time.sleep(1)
    asyncio.get_running_loop().call_later(1, hold_up_the_loop, targets)

sys.exit(serve(load_config(Path(sys.argv[1])), ready=hold_up_the_loop))
"""
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

    watchdog = LoopWatchdog(log, lambda _: None)
    with watchdog.watching(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TOLD_S):
            if step is None:
                for _ in range(300):
                    await asyncio.sleep(0.001)
            else:
                asyncio.get_running_loop().call_soon(step)
                await first.wait()
    return told, watchdog.figures


async def watched_well(step: Callable[[], None]) -> tuple[Told, LoopFigures]:
    """The same of the first try in which the machine did not hold up the loop before, or the watchdog throughout."""
    async with asyncio.timeout(BOUND_S):
        while True:
            told, figures = await watched(step)
            if [1 for held_up_s, culprit, _ in told if step.__name__ in culprit and held_up_s > HELD_UP_S / 2]:
                return told, figures


@pytest.mark.parametrize("step", [blocks, computes, keeps_the_lock])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_step_that_holds_up_the_loop_is_told_with_its_culprit(
    step: Callable[[], None], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        told, figures = runner.run(watched_well(step))
    ((held_up_s, culprit, count),) = told
    assert f"{step.__name__} (tests/telemetry/test_loop_watchdog.py:" in culprit
    assert held_up_s > HELD_UP_S / 2
    assert count == 1
    assert figures.longest_s >= held_up_s
    assert figures.over_20_ms >= figures.over_100_ms >= 1


async def test_another_thread_that_keeps_the_lock_is_told_with_what_it_runs() -> None:
    told: list[str] = []
    first, ended = asyncio.Event(), threading.Event()

    def log(_: float, culprit: str, __: int) -> None:
        if "keeps_the_lock" in culprit:  # else the machine held up the loop before
            told.append(culprit)
            first.set()

    def keeps_the_lock_often() -> None:
        while not ended.is_set():
            keeps_the_lock()

    watchdog = LoopWatchdog(log, lambda _: None)
    thread = threading.Thread(target=keeps_the_lock_often, name="hostile " + "n" * 100)
    with watchdog.watching():
        thread.start()
        try:
            async with asyncio.timeout(BOUND_S):
                await first.wait()
        finally:
            ended.set()
            await asyncio.to_thread(thread.join)
    assert "; beside it hostile nnn" in told[0]
    assert "n" * 41 not in told[0]
    assert len(told[0]) < 3_000


def test_short_steps_name_no_culprit() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(3):  # the machine may hold up one of them
            told, _ = runner.run(watched(None))
            named = [line for line in told if "test_loop_watchdog" in line[1]]
            if not named:
                break
    assert named == []


async def test_each_period_in_which_the_loop_was_held_up_is_reported_once_and_others_are_not() -> None:
    reports: list[LoopFigures] = []
    reported = asyncio.Event()

    def report(figures: LoopFigures) -> None:
        reports.append(figures)
        reported.set()

    watchdog = LoopWatchdog(lambda *_: None, report, report_interval_s=0.1)
    with watchdog.watching():
        async with asyncio.timeout(BOUND_S):
            for times in (1, 2):  # and more where the machine holds it up as well
                while sum("blocks (" in each.culprit and each.over_100_ms > 0 for each in reports) < times:
                    reported.clear()
                    asyncio.get_running_loop().call_soon(blocks)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reported.wait(), TOLD_S)
    assert sum(figures.over_100_ms for figures in reports) <= watchdog.figures.over_100_ms, "each once"
    assert all(figures.over_20_ms for figures in reports)


def test_a_sidecar_whose_loop_is_held_up_logs_the_culprit(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[server]\nlisten = ["127.0.0.1:0"]\nallow_anonymous = true\n')
    command = (sys.executable, "-c", LAUNCH, str(tmp_path / "fumehood.toml"))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        for text in process.stderr:  # until it ends, which it does once it has told: in 10 s if of another step first
            lines.append(json.loads(text))
            if "hold_up_the_loop (" in lines[-1].get("culprit", ""):
                process.terminate()
    held_up = next(line for line in lines if "hold_up_the_loop (" in line.get("culprit", ""))
    assert held_up["event"] == "loop_held_up"
    assert held_up["ms"] > 200
    assert lines[-1]["event"] == "stopped"
    assert "hold_up_the_loop (" in lines[-1]["loop_longest_culprit"]
    assert process.returncode == 0
