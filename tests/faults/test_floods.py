"""Plugins that say too much."""

from __future__ import annotations

import psutil
import pytest
from fumehood_server.model.worker import CancelReason
from fumehood_server.workers.output.logs import MAX_KEPT_BYTES, MAX_LINES

from .bench import Bench, error_of, invocation

pytestmark = pytest.mark.promise("S905")

CALLS_BESIDE = 200
GROWTH_BYTES = 48 * 1024 * 1024
"""A flood of a gigabyte a second would pass this in a moment. What is kept of each plugin is 1 MiB and one frame."""


@pytest.mark.parametrize(
    "tool",
    ["stderr_flood", "stderr_flood_without_newline", "log_flood", "endless_updates", "stdout_flood_of_empty_frames"],
)
async def test_a_flood_costs_bounded_memory_and_disturbs_nobody(bench: Bench, tool: str) -> None:
    spec = bench.spec()
    process = psutil.Process()
    async with bench.sole_worker(spec) as worker:
        before = process.memory_info().rss
        flooding = worker.invoke(invocation(tool))
        for _ in range(CALLS_BESIDE):
            await bench.honest()
        assert process.memory_info().rss - before < GROWTH_BYTES
        error_of(await flooding.end(CancelReason.DEADLINE))
        await bench.until_gone()
    lines = bench.logs.of(spec.plugin).last(10_000)
    assert len(lines) <= MAX_LINES
    assert sum(len(line.message) for line in lines) <= MAX_KEPT_BYTES
    assert all(len(line.message.encode()) <= 8192 and line.message.isprintable() for line in lines)
    if tool in ("stderr_flood", "log_flood"):
        assert sum(line.dropped for line in lines) > 0 or len(lines) == MAX_LINES


async def test_facts_of_a_failure_that_no_caller_could_read_are_left_out(bench: Bench) -> None:
    """The writer of JSON gives up on what its reader takes, and a call without an outcome would be waited for."""
    kept = error_of(await bench.call(bench.spec(), "fails_with_details_nested_less"))
    assert "nested" in kept.details
    error = error_of(await bench.call(bench.spec(), "fails_with_nested_details"))
    assert error.message == "it broke"
    assert error.details == {"details_left_out": "nested too deeply"}


async def test_a_media_type_is_cut_since_no_limit_counts_it(bench: Bench) -> None:
    (block,) = (await bench.call(bench.spec(), "endless_media_type")).content
    assert (block.data, len(block.media_type)) == (b"image", 255)


async def test_threads_beyond_the_limit_are_the_plugins_own_trouble(bench: Bench) -> None:
    async with bench.sole_worker(bench.spec()) as worker:
        handle = worker.invoke(invocation("fills_threads"))
        await bench.honest()
        error_of(await handle.end(CancelReason.CALLER))
    await bench.until_gone()
