"""Plugins that never get as far as a call."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from fumehood_sandbox import launch
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.taxonomy import Code
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.process.worker import ProcessWorker

from .bench import BOUND_S, SETTINGS, Bench

pytestmark = pytest.mark.promise("S905")


async def test_an_exit_at_start_is_told_with_its_status_and_last_words(bench: Bench) -> None:
    error = await bench.start_error(bench.spec("exits_at_start"))
    assert error.code is Code.TOOL_UNAVAILABLE
    assert error.retryable
    assert error.details["phase"] == "start"
    assert error.details["exit"] == "exited with status 3"
    assert error.details["stderr"] == ["Traceback: no module named moon"]
    assert "exited with status 3" in error.message
    assert "no module named moon" in error.message
    assert bench.left() == []


async def test_an_exit_before_anybody_watches_is_told_as_any_other(bench: Bench) -> None:
    spec = bench.spec("exits_at_start")
    process = launch(spec.policy, spec.program)
    async with asyncio.timeout(BOUND_S):
        while Path(f"/proc/{process.init_pid}").exists():  # noqa: ASYNC110 - nobody tells of it, that is the point
            await asyncio.sleep(0.01)
    worker = ProcessWorker(spec, "gone", process, log=bench.logs.of(spec.plugin), settings=SETTINGS)
    with pytest.raises(WorkerUnavailableError) as caught:
        async with worker:
            await worker.greet(BOUND_S)
    assert caught.value.error.details["exit"] == "exited with status 3"
    assert caught.value.error.details["stderr"] == ["Traceback: no module named moon"]
    await bench.honest()


@pytest.mark.parametrize("case", ["never_ready", "stops_itself_at_start"])
async def test_a_plugin_that_never_says_ready_is_ended(bench: Bench, case: str) -> None:
    async with Pools(bench.logs, dataclasses.replace(SETTINGS, start_timeout_s=1.0)) as pools:
        error = await Bench(pools, bench.logs, token=bench.token).start_error(bench.spec(case))
    assert error.code is Code.TOOL_UNAVAILABLE
    assert "did not say Ready within 1 s" in error.message
    assert bench.left() == []


async def test_another_version_is_named(bench: Bench) -> None:
    error = await bench.start_error(bench.spec("other_version"))
    assert error.code is Code.CONFIG_PLUGIN_INVALID
    assert error.details["version"] == 2
    assert error.details["spoken"] == [1]
    assert not error.retryable
    assert bench.left() == []


@pytest.mark.parametrize(
    ("case", "violation"),
    [
        ("garbage_at_start", "frame_malformed"),
        ("huge_frame_at_start", "frame_too_large"),
        ("result_before_ready", "frame_before_ready"),
        ("update_before_ready", "frame_before_ready"),
        ("log_before_ready", "frame_before_ready"),
        ("ready_twice", "second_ready"),
        ("two_million_tools", "too_many_elements"),
        ("two_million_capabilities", "too_many_elements"),
        ("floods_at_start", "too_many_unknown_frames"),
        ("closes_stdout_at_start", "stdout_closed"),
    ],
)
async def test_breaking_the_wire_at_start_is_a_protocol_error(bench: Bench, case: str, violation: str) -> None:
    error = await bench.start_error(bench.spec(case))
    assert (error.code, error.details["violation"]) == (Code.TOOL_PROTOCOL_ERROR, violation)
    assert bench.left() == []


async def test_a_failed_start_is_not_repeated_for_each_call(bench: Bench) -> None:
    spec = bench.spec("exits_at_start")
    async with Pools(bench.logs, dataclasses.replace(SETTINGS, backoff_first_s=BOUND_S)) as pools:
        waiting = Bench(pools, bench.logs, token=bench.token)
        first = await waiting.start_error(spec)
        assert first.details["retry_after_s"] > 0
        again = await waiting.start_error(spec)
        assert 0 < again.details["retry_after_s"] <= first.details["retry_after_s"]
    starts = [line for line in bench.logs.of(spec.plugin).last(1000) if line.message.startswith("Traceback")]
    assert len(starts) == 1


async def test_an_honest_plugin_is_ready(bench: Bench) -> None:
    result = await bench.call(bench.spec("serve"), "echo")
    assert result.error is None
    assert result.content[0].text == "echo"


async def test_a_missing_program_is_told_before_anything_runs() -> None:
    async with Pools(LogSink(), SETTINGS) as pools:
        bench = Bench(pools, LogSink())
        spec = bench.spec()
        missing = dataclasses.replace(spec.program, argv=("/no/such/program",))  # type: ignore[type-var] # an Executable
        error = await bench.start_error(dataclasses.replace(spec, program=missing))
        assert error.code is Code.TOOL_UNAVAILABLE
        assert "/no/such/program" in error.message


async def test_a_plugin_with_too_many_tools_is_invalid(bench: Bench) -> None:
    with pytest.raises(WorkerUnavailableError) as caught:
        await bench.pools.describe(bench.spec("too_many_tools"))
    assert caught.value.error.code is Code.CONFIG_PLUGIN_INVALID
    assert bench.left() == []
