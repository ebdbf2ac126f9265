"""Mode `plan`: a plan is made, its steps are carried out, and what comes of them is held against its contract."""

from __future__ import annotations

from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import ModeResult, RunContext
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.plans.actions import Actions
from fumehood_server.orchestration.plans.asking import EXPLAINED, Asker, PlainText, as_subject
from fumehood_server.orchestration.plans.checking import OutputChecks
from fumehood_server.orchestration.plans.executor import PlanExecutor
from fumehood_server.orchestration.plans.long_json import TooLongError, dumped
from fumehood_server.orchestration.plans.plan import ExecutionPlan, Source
from fumehood_server.orchestration.plans.planner import ModelPlanner, Planner, RequestPlanner
from fumehood_server.orchestration.plans.references import read_reference
from fumehood_server.orchestration.plans.trace import PlanTrace
from fumehood_server.orchestration.result_bounds import MAX_RESULT_BYTES


async def run_plan(run: RunContext, checks: OutputChecks) -> ModeResult:
    """Carry out a run in mode `plan`, from its state PLAN to VALIDATE. `checks` hold outputs against contracts.

    However it ends, the run has the plan's trace: in the result, or by `keep_plan_trace`.

    Raises:
        RunFailedError: there is no plan, a step failed, or the output breaks a contract that is strict.
    """
    asker = Asker(run, checks)
    run.enter(State.PLAN, "a plan is needed")
    planner: Planner = RequestPlanner() if run.request.plan_json else ModelPlanner(run, asker)
    trace = PlanTrace(planner_id=planner.planner_id)
    try:
        plan = await planner.create_plan(run, trace)
        trace.take(plan)
        return await _carry_out(run, asker, plan, trace)
    except BaseException:
        run.keep_plan_trace(trace.to_json())
        raise


async def _carry_out(run: RunContext, asker: Asker, plan: ExecutionPlan, trace: PlanTrace) -> ModeResult:
    run.enter(State.PREPARE, f"there is a plan of {len(plan.steps)} steps")
    # What is missing or can't be used is found here, before a tool has done anything.
    if plan.needs_engine or run.request.output.semantic_check:
        _ = run.engine.name
    await asker.prepare((*plan.contracts, run.request.output))
    run.enter(State.EXECUTE, "the steps are carried out")
    executor = PlanExecutor(run, plan, asker, trace)
    await executor.carry_out()
    value = await executor.output()
    run.enter(State.VALIDATE, "every step has ended")
    error: CallError | None = None
    if not run.request.output.is_empty:
        error, value = await _validated(run, asker, plan, executor.actions, value)
    if error is not None and run.request.output.strict:
        raise RunFailedError(error)
    content, output_json = (str(value), "") if isinstance(value, PlainText) else ("", await _output_json(value))
    return ModeResult(
        content=content,
        output_json=output_json,
        error=error,
        plan_trace_json=trace.to_json(),
        said=(Message(role=Role.ASSISTANT, text=content or output_json),),
    )


async def _output_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    try:
        return await dumped(value, MAX_RESULT_BYTES)
    except TooLongError:
        text = f"the plan's output is longer than the {MAX_RESULT_BYTES:,} bytes that can be answered"
        details = {"reason": "response_too_large"}
        raise failed(Code.INFERENCE_MALFORMED_RESPONSE, f"{text}: ask for less at a time", details=details) from None


async def _validated(
    run: RunContext,
    asker: Asker,
    plan: ExecutionPlan,
    actions: Actions,
    value: Any,  # noqa: ANN401 - any JSON value
) -> tuple[CallError | None, Any]:
    """What is wrong with the output, and the output as its contract has it.

    Where it is a model's whole answer, the model is told what is wrong and asked again, as often as the retries of the
    step say that the output is of.
    """
    said, contract = await as_subject(value, run.request.output)
    error, found = await asker.verdict(said, (contract,), _name(0))
    source = _source(plan)
    if source is None:
        return error, value if error is not None else found
    question = await actions.question(source.step, (*source.contracts, contract), most=source.retries, name_of=_name)
    attempt = 0
    while error is not None and error.code.category in EXPLAINED and attempt < source.retries:
        attempt += 1
        run.enter(State.EXECUTE, "the output is not as it should be")
        said = await asker.ask(question, attempt, said, error)
        run.enter(State.VALIDATE, "the model has answered again")
        error, found = await asker.verdict(said, question.contracts, _name(attempt))
    if error is None:
        return None, found
    return error, PlainText(said.text) if attempt else value


def _name(attempt: int) -> str:
    # Of one number: the names that steps give have two.
    return f"output-{attempt}"


def _source(plan: ExecutionPlan) -> Source | None:
    template = plan.output_template
    return plan.source_of(read_reference(template)) if isinstance(template, dict) else None
