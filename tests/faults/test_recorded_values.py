"""A hostile plugin's recorded values are bounded in number and bytes, and cost nobody else anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fumehood_server.model.worker import InvocationResult

from tests.faults.bench import Bench, ended, invocation

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
