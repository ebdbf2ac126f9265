"""Ends, starts and sessions of runs that meet in one step of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from fumehood_server.config.engines import OrchestrationConfig
from fumehood_server.errors import RefusalReason, RefusedError
from fumehood_server.journal.off import NoJournal
from fumehood_server.model.batches import BatchConfig
from fumehood_server.model.caller import Caller, UnrestrictedRights
from fumehood_server.model.tool import Payloads
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.orchestrator import OrchestrationParts, Orchestrator
from fumehood_server.orchestration.request import SystemRequest


class Engine:
    """Answers at once or when it is let, and counts who is asking."""

    name = "engine"
    attempts = 1
    constrains_schema = constrains_grammar = False

    def __init__(self) -> None:
        self.asking = self.most = 0
        self.then: list[Callable[[], object]] = []
        self.let = asyncio.Event()
        self.asked = asyncio.Event()

    async def infer(self, _request: InferenceRequest, _on_text: Callable[[str], None]) -> InferenceAnswer:
        self.asking += 1
        self.asked.set()
        self.most = max(self.most, self.asking)
        await self.let.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        self.asking -= 1
        if self.then:
            self.then.pop()()
        answer = Message(role=Role.ASSISTANT, text="Done.")
        return InferenceAnswer(message=answer, finish_reason=FinishReason.STOP)


class NoTools:
    tools = ()


class NothingRecorded:
    async def run(self, _read: object) -> list[object]:
        return []


def orchestrator(engine: Engine) -> Orchestrator:
    parts = OrchestrationParts(
        engines={"engine": engine},
        tools=NoTools(),
        calls=cast("Any", type("NoCalls", (), {"max_calls_of_one": 1})()),
        checks=cast("Any", None),
        rights=UnrestrictedRights(),
        journal=NoJournal(),
        reads=cast("Any", NothingRecorded()),
        window_s=1.0,
        payloads=Payloads.FULL,
        configuration=str,
        batch=BatchConfig,
        settings=lambda: OrchestrationConfig(engine="engine", max_runs=4),
    )
    return Orchestrator(parts)


def asked(request_id: str, session_id: str = "") -> SystemRequest:
    message = Message(role=Role.USER, text="Go.")
    return SystemRequest(request_id=request_id, is_named=False, session_id=session_id, messages=(message,))


async def test_a_run_that_is_ended_before_its_first_step_leaves_its_place() -> None:
    engine = Engine()
    engine.let.set()
    async with orchestrator(engine) as runs:
        for _ in range(8):
            run, _ = runs.start(asked("r"))
            run.cancel("at once")
            response = await run.response()
            assert (response.state, response.error and response.error.message) == (
                "CANCELLED",
                "The run was ended: at once.",
            )
        run, _ = runs.start(asked("r"))
        assert (await run.response()).content == "Done."
        await runs.idle()


async def test_a_caller_leaves_places_of_runs_to_others() -> None:
    engine = Engine()
    ada, ben = Caller(name="ada"), Caller(name="ben")
    async with orchestrator(engine) as runs:
        its = [runs.start(replace(asked(str(number)), caller=ada))[0] for number in range(3)]
        with pytest.raises(RefusedError) as refused:
            runs.start(replace(asked("one more"), caller=ada))
        assert refused.value.refusal.reason is RefusalReason.TOO_MANY_RUNS
        assert runs.start(replace(asked("0"), caller=ada))[1], "to join takes no place of a run"
        its.append(runs.start(replace(asked("another's"), caller=ben))[0])
        engine.let.set()
        for run in its:
            assert (await run.response()).content == "Done."
        await runs.idle()
        its = [runs.start(replace(asked(str(number)), caller=ada))[0] for number in range(3, 6)]
        for run in its:
            assert (await run.response()).content == "Done."


async def test_runs_of_a_session_never_meet() -> None:
    engine = Engine()
    async with orchestrator(engine) as runs:
        first, second = (runs.start(asked(name, "s"))[0] for name in ("first", "second"))
        third = []
        engine.then.append(lambda: third.append(runs.start(asked("third", "s"))[0]))
        engine.let.set()
        await first.response()
        await asyncio.gather(second.response(), third[0].response())
        other = Engine()
        other.let.set()
    async with orchestrator(other) as runs:
        await asyncio.gather(*(runs.start(asked(name, name))[0].response() for name in ("a", "b")))
    assert (engine.most, other.most) == (1, 2)


async def test_the_first_reason_for_an_end_counts() -> None:
    engine = Engine()
    async with orchestrator(engine) as runs:
        run, _ = runs.start(asked("r"))
        await engine.asked.wait()
        run.cancel("the first")
        run.cancel("the second")
        assert run.stop("the third", resumable=True) is False
        runs.suspend()
        response = await run.response()
    assert (response.state, response.error and response.error.message) == ("CANCELLED", "The run was ended: the first.")
