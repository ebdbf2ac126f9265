"""A hostile plugin's recorded values are bounded in number and bytes, and cost nobody else anything."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import pytest
from fumehood_server.model.worker import InvocationResult
from fumehood_server.workers.wire.frame_reader import FRAMES_AT_ONCE
from fumehood_server.workers.wire.portions import PORTION_ITEMS

from tests.faults.bench import Bench, Updates, ended, invocation

pytestmark = pytest.mark.promise("S810")

MAX_BYTES = 100_000


async def recorded(bench: Bench, tool: str, max_bytes: int = MAX_BYTES) -> InvocationResult:
    lease = await bench.pools.acquire(bench.spec())
    try:
        return await ended(lease.worker.invoke(replace(invocation(tool), max_recorded_bytes=max_bytes)))
    finally:
        lease.release()


@pytest.mark.parametrize(("tool", "kept", "left_out"), [("too_many_values", 10_000, 1_001), ("too_long_values", 2, 3)])
async def test_values_beyond_the_bounds_are_left_out_and_counted(
    bench: Bench, tool: str, kept: int, left_out: int
) -> None:
    values = (await recorded(bench, tool, 10 * MAX_BYTES)).values
    assert values is not None
    assert (len(values.values), values.left_out) == (kept, left_out)


async def test_values_that_nobody_asked_for_are_not_kept(bench: Bench) -> None:
    assert (await recorded(bench, "too_many_values", 0)).values is None


async def test_values_after_the_result_end_the_process(bench: Bench) -> None:
    assert (await recorded(bench, "values_after_result")).content[0].text == "done"
    await bench.until_gone()
    assert any("frame_after_result" in line.message for line in bench.logs.of("serve").last(50))
    await bench.honest()


@contextlib.contextmanager
def searches_by_turn() -> Iterator[list[int]]:
    """How many texts were searched for secrets in each turn of the event loop."""
    counts = [0]

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if frame.f_code.co_qualname == "BaseEventLoop._run_once":
            counts.append(0)
        elif frame.f_code.co_qualname == "FormSearch.replace":
            counts[-1] += 1

    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("tool", "texts"), [("short_frames_of_values", 6000), ("short_frame_of_blocks", 600)])
async def test_secrets_are_taken_out_of_short_frames_of_many_texts_in_steps(
    bench: Bench, tool: str, texts: int
) -> None:
    bench.logs.of("serve").redactor.learn("KEY", b"xxxxxxxx")
    with searches_by_turn() as counts:
        result = await recorded(bench, tool, 10 * MAX_BYTES)
    shown = [block.text for block in result.content]
    if result.values is not None:
        shown = [each.value_json.strip('"') for each in result.values.values]
    assert shown == ["[secret KEY]"] * texts
    assert sum(counts) >= texts
    assert max(counts) <= PORTION_ITEMS + FRAMES_AT_ONCE


async def test_secrets_are_not_looked_for_in_values_that_are_left_out(bench: Bench) -> None:
    bench.logs.of("serve").redactor.learn("KEY", b"xxxxxxxx")
    with searches_by_turn() as counts:
        assert (await recorded(bench, "short_frames_of_values", 0)).values is None
        values = (await recorded(bench, "short_frames_of_values", 1)).values
    assert values is not None
    assert (len(values.values), values.left_out) == (0, 6000)
    assert sum(counts) == 2  # in the texts of the two results


async def test_secrets_are_looked_for_in_updates_that_somebody_waits_for_and_in_no_others(bench: Bench) -> None:
    bench.logs.of("serve").redactor.learn("KEY", b"step 3 ")
    for updates, searched in ((None, 0), (Updates(), 5)):
        with searches_by_turn() as counts:
            await bench.call(bench.spec(), "noisy", updates)
        assert sum(counts) == 2 + searched  # in a log line and the result
