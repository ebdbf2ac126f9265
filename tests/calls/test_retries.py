"""Which failures are followed by another attempt, how long after, and what the call then ends with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fumehood_sandbox import Level
from fumehood_server.calls import Entry, Executor
from fumehood_server.calls.call import Call
from fumehood_server.calls.steps.retry import delay_s, is_transient
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.model.call import CallError, CallOutcome, CallRetry, CallUpdate
from fumehood_server.model.retries import RetryConfig
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import Invocation, InvocationResult
from fumehood_server.workers import faults

from tests.calls.fake import FakePools, FakeTools, FakeWorker, answered, code_of, ended, listen, request, tool

DEATH = faults.death_error("fake", "status 1", (), ready=True, mid_frame=False)
TRANSIENT = CallError(code=Code.TOOL_EXECUTION_FAILED, message="busy", retryable=True)
FAILED = CallError(code=Code.TOOL_EXECUTION_FAILED, message="no")
UNKNOWN = faults.lost_call_error(DEATH, Level.EXTERNAL, dispatched=True)

TABLE: dict[str, tuple[CallError, bool]] = {
    "a tool that raised Transient": (TRANSIENT, True),
    "a tool that failed": (FAILED, False),
    "a worker that died": (DEATH, True),
    "a worker that died with a call of an idempotent tool": (UNKNOWN, True),
    "a worker that died before": (faults.lost_call_error(DEATH, Level.EXTERNAL, dispatched=False), True),
    "a worker that is ending": (faults.ending_error("fake"), True),
    "a worker that does not start": (faults.never_ready_error("fake", 10, ()), True),
    "a worker in its backoff": (faults.backoff_error(DEATH, 0.5), True),
    "a call that another one ended": (faults.cancellation_ignored_error("fake"), True),
    "the tool's timeout": (
        CallError(code=Code.TOOL_TIMEOUT, message="late", retryable=True, details={"bound": "tool"}),
        True,
    ),
    "the request's timeout": (
        CallError(code=Code.TOOL_TIMEOUT, message="late", retryable=True, details={"bound": "request"}),
        False,
    ),
    "the caller's deadline": (CallError(code=Code.CANCELLED_TIMEOUT, message="late", retryable=True), False),
    "a cancellation": (CallError(code=Code.CANCELLED_SIGNAL, message="no", retryable=True), False),
    "the sidecar's end": (faults.shutdown_error("fake"), False),
    "a worker that has not let go": (CallError(code=Code.TOOL_OUTCOME_UNKNOWN, message="hung"), False),
    "a limit": (CallError(code=Code.TOOL_RESOURCE_EXHAUSTED, message="memory"), False),
    "a broken wire": (faults.violation_error("fake", faults.Violation.SECOND_READY, "two"), False),
}


def test_errors_that_may_pass_are_retried_and_no_others() -> None:
    wrong = {name: error for name, (error, wanted) in TABLE.items() if is_transient(error) is not wanted}
    assert not wrong


def test_the_wait_doubles_has_jitter_a_cap_and_the_tools_own_word() -> None:
    call = Call(request())
    for failures, nominal in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4), 1):
        waits = [delay_s(call, tool(), TRANSIENT, failures) for _ in range(200)]
        assert all(wait is not None and nominal * 0.75 <= wait <= min(nominal * 1.25, 10) for wait in waits)
        assert len({*waits}) > 100
    assert delay_s(call, tool(timeout_s=60), TRANSIENT, 30) is not None
    assert (delay_s(call, tool(), TRANSIENT, 30) or 0) <= 10

    def asked(seconds: Any, **more: Any) -> float | None:
        told = Call(request(**more)) if more else call
        return delay_s(told, tool(), replace(TRANSIENT, details={"retry_after_s": seconds}), 1)

    assert asked(3.5) == 3.5
    short = {repr(each): asked(each) for each in (0, -5, "x", None, [1], True)}
    assert {name for name, wait in short.items() if wait is None or wait > 0.125} == set()
    assert [asked(1e300), asked(10**400), asked(31)] == [None] * 3
    assert asked(3.5, timeout_s=3.0) is None
    assert asked(3.5, caller_deadline=time.monotonic() + 3) is None


Answers = Callable[[Invocation], InvocationResult]


def failing(*errors: CallError) -> Answers:
    """These in turn, then a success that names its attempt."""

    def answer(invocation: Invocation) -> InvocationResult:
        if invocation.attempt <= len(errors):
            return answered(error=errors[invocation.attempt - 1])
        return answered(f"attempt {invocation.attempt}")

    return answer


class Case:
    """An executor with one fake tool."""

    def __init__(self, level: Level = Level.NONE, *, idempotent: bool = False, **config: int) -> None:
        self.worker = FakeWorker()
        self.pools = FakePools(worker=self.worker)
        self.tools = FakeTools((tool(level=level, idempotent=idempotent),))
        self.heard: list[Entry] = []
        self.executor = Executor(
            self.tools,
            self.pools,
            journal=NO_JOURNAL,
            max_concurrent_calls=4,
            retries=lambda: RetryConfig(**config),
        )

    async def outcome(self, answer: Answers, max_attempts: int = 0, **more: Any) -> CallOutcome:
        self.worker.answer = answer
        self.heard.clear()
        async with self.executor as executor:
            wanted = replace(request(**more), max_attempts=max_attempts)
            call = executor.start(wanted)
            listen(call, self.heard)
            return await ended(call)


async def test_a_call_is_tried_until_it_succeeds_under_one_id_and_every_attempt_is_told() -> None:
    case = Case()
    outcome = await case.outcome(failing(TRANSIENT, replace(TRANSIENT, details={"much": "x" * 9999})), 3)
    assert (outcome.content[0].text, outcome.attempts, outcome.error) == ("attempt 3", 3, None)
    assert [each.invocation.call_id for each in case.worker.attempts] == ["c1"] * 3
    assert [each.attempt for each in case.heard if isinstance(each, CallRetry)] == [1, 2]
    assert all(each.error == TRANSIENT for each in case.heard if isinstance(each, CallRetry))
    assert outcome.usage is not None
    assert outcome.usage.cpu_s == pytest.approx(0.75), "of all attempts"
    assert case.pools.leases == 0


@pytest.mark.parametrize(
    ("level", "idempotent", "config", "wanted", "attempts"),
    [
        (Level.NONE, False, {}, 0, 1),
        (Level.NONE, False, {"default_attempts": 2}, 0, 2),
        (Level.READ, False, {}, 2, 2),
        (Level.NONE, False, {"max_attempts": 2}, 9, 2),
        (Level.WRITE, False, {"default_attempts": 3}, 3, 1),
        (Level.EXTERNAL, True, {}, 2, 2),
    ],
)
async def test_only_what_may_run_twice_is_tried_again_and_no_more_often_than_allowed(
    level: Level, idempotent: bool, config: dict[str, int], wanted: int, attempts: int
) -> None:
    case = Case(level, idempotent=idempotent, **config)
    outcome = await case.outcome(failing(*(TRANSIENT,) * 9), wanted)
    assert (outcome.attempts, len(case.worker.attempts), outcome.error) == (attempts, attempts, TRANSIENT)


async def test_the_doubt_that_an_attempt_leaves_stays_until_one_succeeds() -> None:
    unknown = replace(UNKNOWN, details={**UNKNOWN.details, "outcome_unknown": True})
    outcome = await Case(Level.WRITE, idempotent=True).outcome(failing(unknown, FAILED), 3)
    assert code_of(outcome) is Code.TOOL_OUTCOME_UNKNOWN
    assert outcome.error is not None
    assert outcome.error.caused_by == FAILED
    assert outcome.error.details["outcome_unknown"]
    outcome = await Case(Level.WRITE, idempotent=True).outcome(failing(unknown, TRANSIENT), 3)
    assert (outcome.error, outcome.attempts) == (None, 3)


async def test_a_wait_that_does_not_fit_is_not_begun_and_the_last_error_stands() -> None:
    case = Case()
    late = replace(TRANSIENT, details={"retry_after_s": 20})
    outcome = await case.outcome(failing(late), 3, timeout_s=10.0)
    assert (outcome.error, outcome.attempts, case.heard) == (late, 1, [])


async def test_a_cancelled_wait_ends_at_once_and_holds_no_worker() -> None:
    case = Case()
    case.worker.answer = failing(replace(TRANSIENT, details={"retry_after_s": 20}))
    waits = asyncio.Event()
    async with case.executor as executor:
        call = executor.start(replace(request(), max_attempts=3))
        call.updates.read(waits.set)
        async with asyncio.timeout(5):
            await waits.wait()
            assert case.pools.leases == 0
            assert executor.cancel("c1")
            outcome = await call.outcome()
    assert code_of(outcome) is Code.CANCELLED_SIGNAL
    assert outcome.error is not None
    assert outcome.error.caused_by is not None
    assert (outcome.error.caused_by.message, outcome.attempts) == ("busy", 1)


async def test_a_worker_that_can_not_be_had_is_waited_for_like_any_other_failure() -> None:
    case = Case()
    case.pools.cold, case.pools.error = True, faults.never_ready_error("fake", 10, ())
    case.worker.answer = failing()

    def heal() -> None:
        case.pools.cold = False

    async with case.executor as executor:
        call = executor.start(replace(request(), max_attempts=2))
        call.updates.read(heal)
        outcome = await ended(call)
    assert (outcome.error, outcome.attempts, outcome.content[0].text) == (None, 1, "attempt 1")


async def test_updates_of_later_attempts_are_numbered_on() -> None:
    case = Case()
    async with case.executor as executor:
        call = executor.start(replace(request(), max_attempts=2))
        heard = listen(call)
        for count in (1, 2):
            await case.worker.invoked(count)
            attempt = case.worker.attempts[-1]
            attempt.update("a", 1)
            attempt.update("b", 2)
            attempt.resolve(answered(error=TRANSIENT) if count == 1 else answered("done"))
        outcome = await ended(call)
    assert outcome.error is None
    assert [each.sequence for each in heard if isinstance(each, CallUpdate)] == [1, 2, 3, 4]
