"""Plugins that break the wire in the middle of a call."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fumehood_sandbox import Level
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import CancelReason
from fumehood_server.workers import LogLine, Pools

from .bench import BOUND_S, SETTINGS, Bench, Updates, ended, error_of, invocation

pytestmark = pytest.mark.promise("S905")

VIOLATIONS = [
    ("garbage", "frame_malformed"),
    ("huge_frame", "frame_too_large"),
    ("endless_length", "length_too_long"),
    ("two_million_blocks", "too_many_elements"),
    ("two_million_headers", "too_many_elements"),
    ("headers_that_end_too_late", "frame_malformed"),
    ("half_frame_then_stall", "frame_stalled"),
    ("unknown_invocation", "unknown_invocation"),
    ("invocation_zero", "unknown_invocation"),
    ("log_for_unknown_invocation", "unknown_invocation"),
    ("second_ready", "second_ready"),
    ("endless_updates", "too_many_updates"),
    ("endless_values", "too_many_values"),
    ("stdout_flood_of_text", "frame_malformed"),
    ("stdout_flood_of_empty_frames", "too_many_unknown_frames"),
]


@pytest.mark.parametrize(("tool", "violation"), VIOLATIONS)
async def test_a_broken_wire_is_one_typed_error(bench: Bench, tool: str, violation: str) -> None:
    error = error_of(await bench.call(bench.spec(), tool))
    assert error.code is Code.TOOL_PROTOCOL_ERROR
    assert error.details["violation"] == violation
    assert not error.retryable
    assert bench.left() == []


@pytest.mark.parametrize("level", [Level.NONE, Level.WRITE])
async def test_other_calls_of_the_process_end_by_their_level(bench: Bench, level: Level) -> None:
    spec = bench.spec(level=level)
    sibling_lease = await bench.pools.acquire(spec)
    updates = Updates()
    sibling = sibling_lease.worker.invoke(invocation("slow", updates))
    await updates.first()
    offender = await bench.call(spec, "garbage")
    for result in (offender, await ended(sibling)):
        error = error_of(result)
        assert error.details["violation"] == "frame_malformed"
        if level is Level.NONE:
            assert error.code is Code.TOOL_PROTOCOL_ERROR
        else:
            assert error.code is Code.TOOL_OUTCOME_UNKNOWN
            assert error.caused_by is not None
            assert error.caused_by.code is Code.TOOL_PROTOCOL_ERROR
    sibling_lease.release()


@pytest.mark.parametrize(
    ("tool", "violation"), [("two_results", "second_result"), ("update_after_result", "frame_after_result")]
)
async def test_the_first_result_stands_and_the_process_ends(bench: Bench, tool: str, violation: str) -> None:
    spec = bench.spec()
    async with bench.sole_worker(spec) as worker:
        result = await ended(worker.invoke(invocation(tool)))
        assert result.error is None
        await bench.until_gone()
        after = error_of(await ended(worker.invoke(invocation("echo"))))
        assert after.code is Code.TOOL_UNAVAILABLE
        assert after.details["dispatched"] is False
    errors = [line.message for line in bench.logs.of(spec.plugin).last(99) if line.level == "error"]
    assert any(violation in message for message in errors)


async def test_a_half_frame_and_an_exit_is_an_exit(bench: Bench) -> None:
    error = error_of(await bench.call(bench.spec(), "half_frame_then_exit"))
    assert error.code is Code.TOOL_UNAVAILABLE
    assert error.details["mid_frame"] is True
    assert bench.left() == []


async def test_a_closed_stdout_of_a_process_that_lives_on_is_named(bench: Bench) -> None:
    error = error_of(await bench.call(bench.spec(), "closes_stdout"))
    assert (error.code, error.details["violation"]) == (Code.TOOL_PROTOCOL_ERROR, "stdout_closed")
    assert bench.left() == []


async def test_an_unfinished_frame_is_told_where_the_deadline_comes_first(bench: Bench) -> None:
    async with Pools(bench.logs, replace(SETTINGS, frame_stall_s=60.0, cancel_grace_s=0.1)) as pools:
        patient = Bench(pools, bench.logs, token=bench.token)
        async with patient.sole_worker(patient.spec()) as worker:
            updates = Updates()
            attempt = worker.invoke(invocation("update_and_half_frame", updates))
            await updates.first()
            error = error_of(await attempt.end(CancelReason.DEADLINE))
    assert error.code is Code.TOOL_TIMEOUT
    assert error.details["mid_frame"] is True
    assert "printed to stdout" in error.message


async def test_an_unfinished_frame_is_told_of_a_process_that_is_never_ready(bench: Bench) -> None:
    async with Pools(bench.logs, replace(SETTINGS, start_timeout_s=8.0, frame_stall_s=60.0)) as pools:
        starts = Bench(pools, bench.logs, token=bench.token)
        error = await starts.start_error(starts.spec("prints_at_start"))
    assert error.details["mid_frame"] is True
    assert "did not say Ready within 8 s (server.start_timeout_s; raise it " in error.message
    assert "), in the middle of a frame" in error.message


async def test_a_call_that_was_not_sent_is_told_nothing_of_the_one_that_crashed(bench: Bench) -> None:
    spec = bench.spec()
    async with bench.sole_worker(spec) as worker:
        crashed = error_of(await ended(worker.invoke(invocation("exits_with_words"))))
        unsent = error_of(await ended(worker.invoke(invocation("echo"))))
    assert "words of the crashed call" in crashed.message
    assert unsent.details["dispatched"] is False
    assert "words" not in repr(unsent)
    assert "exit" not in unsent.details


async def test_a_call_that_waits_for_the_next_start_is_told_nothing_of_the_one_that_crashed(bench: Bench) -> None:
    async with Pools(bench.logs, replace(SETTINGS, backoff_first_s=60.0, backoff_last_s=60.0)) as pools:
        slow = Bench(pools, bench.logs, token=bench.token)
        spec = slow.spec()
        crashed = error_of(await slow.call(spec, "exits_with_words"))
        assert "words of the crashed call" in crashed.message
        await slow.until_gone()
        refused = await slow.start_error(spec)
    assert refused.details["retry_after_s"] > 0
    assert "words" not in repr(refused)


async def test_a_process_that_broke_the_wire_is_replaced(bench: Bench) -> None:
    spec = bench.spec()
    assert (await bench.call(spec, "echo")).error is None
    error_of(await bench.call(spec, "garbage"))
    assert (await bench.call(spec, "echo")).error is None


async def test_updates_and_log_lines_arrive_in_order(bench: Bench) -> None:
    updates = Updates()
    result = await bench.call(bench.spec(), "noisy", updates)
    assert result.error is None
    assert [(update.sequence, update.message) for update in updates.seen] == [(n + 1, f"step {n}") for n in range(5)]
    line = bench.logs.of("serve").last(1)[0]
    assert (line.source, line.level, line.message, line.call_id) == ("log", "info", "a word", "call-noisy")


async def test_a_result_of_thirty_thousand_blocks_is_refused_and_the_worker_lives(bench: Bench) -> None:
    spec = bench.spec()
    error = error_of(await bench.call(spec, "thirty_thousand_blocks"))
    assert error.code is Code.TOOL_RESOURCE_EXHAUSTED
    assert error.details["limit"] == "content_blocks"
    assert (await bench.call(spec, "echo")).error is None


async def failed_again(bench: Bench, spec: WorkerSpec, times: int) -> list[LogLine]:
    """The errors in the log once a start has failed so many times. Attempts during the wait in between are none."""
    async with asyncio.timeout(BOUND_S):
        while True:
            await bench.start_error(spec)
            lines = [line for line in bench.logs.of(spec.plugin).last(99) if line.level == "error"]
            if len(lines) >= times:
                return lines


@pytest.mark.parametrize("case", ["garbage_at_start", "never_ready", "other_version", "huge_frame_at_start"])
@pytest.mark.parametrize("isolation", Isolation)
async def test_a_failure_at_start_is_one_line_of_the_log_each_time(
    case: str, isolation: Isolation, bench: Bench
) -> None:
    # Longer than a launch takes on a busy machine: one that is late has no worker that could say so.
    start_timeout_s = 3.0 if case == "never_ready" else BOUND_S
    settings = replace(SETTINGS, start_timeout_s=start_timeout_s, backoff_first_s=0.001, backoff_last_s=0.001)
    async with Pools(bench.logs, settings) as pools:
        starts = Bench(pools, bench.logs, token=bench.token)
        spec = replace(starts.spec(case), isolation=isolation)
        for times in (1, 2):
            lines = await failed_again(starts, spec, times)
            assert [bool(line.worker_id) for line in lines] == [True] * times


async def test_a_failure_that_no_worker_has_said_is_said_each_time(bench: Bench) -> None:
    async with Pools(bench.logs, replace(SETTINGS, backoff_first_s=0.001, backoff_last_s=0.001)) as pools:
        starts = Bench(pools, bench.logs, token=bench.token)
        program = replace(starts.spec().program, argv=("/no/such/program",))  # type: ignore[type-var] # an Executable
        spec = replace(starts.spec(), program=program)
        for times in (1, 2):
            lines = await failed_again(starts, spec, times)
            assert len(lines) == times
            assert "/no/such/program" in lines[0].message


async def test_a_broken_wire_before_the_first_result_is_one_line_of_the_log(bench: Bench) -> None:
    spec = bench.spec()
    assert error_of(await bench.call(spec, "garbage")).code is Code.TOOL_PROTOCOL_ERROR
    await bench.until_gone()
    lines = [line.message for line in bench.logs.of(spec.plugin).last(99) if line.level == "error"]
    assert len(lines) == 1
    assert "frame_malformed" in lines[0]
