"""Carries out a plan: each step is a task that begins once those before it have ended, a few at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.orchestration.context import RunContext
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.plans.actions import Actions, Occasion
from fumehood_server.orchestration.plans.asking import Asker
from fumehood_server.orchestration.plans.mapping import RECOVERABLE, carry_out_map, raise_first
from fumehood_server.orchestration.plans.outputs import Outputs
from fumehood_server.orchestration.plans.plan import ExecutionPlan, PlanStep
from fumehood_server.orchestration.plans.references import Reference, references_in
from fumehood_server.orchestration.plans.rendering import Renderer
from fumehood_server.orchestration.plans.steps import MapStep, ValidateStep
from fumehood_server.orchestration.plans.timeouts import step_timeout
from fumehood_server.orchestration.plans.trace import PlanTrace, StepState, StepTrace

MAX_AT_ONCE = 8
"""Inferences and calls of one plan: as many as of a batch."""


class PlanExecutor:
    """Carries out one plan, once, for one run."""

    __slots__ = ("_ended", "_failures", "_plan", "_slots", "_timeout_s", "_trace", "actions", "outputs")

    def __init__(self, run: RunContext, plan: ExecutionPlan, asker: Asker, trace: PlanTrace) -> None:
        """`trace` has the plan's steps, and is kept up to date."""
        policy = run.request.plan_policy
        self._plan = plan
        self._trace = trace
        self._timeout_s = policy.step_timeout_s
        self._slots = asyncio.Semaphore(1 if policy.require_linear else MAX_AT_ONCE)
        self._ended = {step.name: asyncio.Event() for step in plan.steps}
        self._failures: dict[str, Exception] = {}
        self.outputs = Outputs()
        self.actions = Actions(run, plan, asker, self.outputs)

    async def carry_out(self) -> None:
        """Carry out every step. After a failure no further step begins; those that are under way end.

        So it is after any other exception, such as that the sidecar shuts down: what a call has done stays on record.

        Raises:
            RunFailedError: the failure of the first step, in the plan's order, that failed.
        """
        async with asyncio.TaskGroup() as group:
            for step in self._plan.steps:
                group.create_task(self._in_turn(step))
        raise_first(self._failures[step.name] for step in self._plan.steps if step.name in self._failures)

    async def output(self) -> Any:  # noqa: ANN401 - any JSON value
        """What the plan comes to.

        Raises:
            RunFailedError: a step that it takes from was skipped, or has no such value.
        """
        template = self._plan.output_template
        missing = self._missing(tuple(references_in(template)))
        if missing is not None:
            error = self._trace.steps[missing].error
            raise _of_step(missing, error) if error is not None else AssertionError("a skipped step has an error")
        renderer = Renderer(self.outputs)
        return await renderer.made(renderer.whole, template)

    async def _in_turn(self, step: PlanStep) -> None:
        trace = self._trace.steps[step.name]
        try:
            for name in step.dependencies:
                await self._ended[name].wait()
            if self._failures:
                return
            missing = self._missing(step.references)
            if missing is None:
                await self._begin(step, trace)
            else:
                trace.state, trace.error = StepState.SKIPPED, self._trace.steps[missing].error
        finally:
            self._ended[step.name].set()

    async def _begin(self, step: PlanStep, trace: StepTrace) -> None:
        try:
            self.outputs[step.name] = await self._result(step, trace)
            trace.state = StepState.DONE
        except RunFailedError as exc:
            trace.error = exc.error
            if step.on_failure == "skip" and exc.category in RECOVERABLE:
                trace.state = StepState.SKIPPED
            else:
                trace.state = StepState.FAILED
                self._failures[step.name] = _of_step(step.name, exc.error)
        except Exception as exc:  # noqa: BLE001 - raised once all have ended
            self._failures[step.name] = exc

    async def _result(self, step: PlanStep, trace: StepTrace) -> Any:  # noqa: ANN401 - any JSON value
        begins = partial(_count, trace)
        if isinstance(step, MapStep):
            trace.state = StepState.RUNNING
            async with step_timeout(step, self._timeout_s):
                return await carry_out_map(
                    step, actions=self.actions, outputs=self.outputs, slots=self._slots, trace=trace, begins=begins
                )
        async with self._slots:
            trace.state = StepState.RUNNING
            async with step_timeout(step, self._timeout_s):
                occasion = Occasion(step=step.name, retries=step.retries, begins=begins)
                if isinstance(step, ValidateStep):
                    return await self.outputs.count(await self.actions.validate(step, occasion))
                return await self.outputs.count(await self.actions.carry_out(step, occasion))

    def _missing(self, references: tuple[Reference, ...]) -> str | None:
        """A step that was skipped and nothing stands in for. None: there is none."""
        for each in references:
            if each.step is not None and not each.has_default and each.step not in self.outputs:
                return each.step
        return None


def _count(trace: StepTrace, error: CallError | None) -> None:
    trace.attempts += 1
    trace.error = error or trace.error


def _of_step(name: str, error: CallError) -> RunFailedError:
    return RunFailedError(replace(error, details={**error.details, "step": name}))
