"""Checks a plan against its `PlanPolicy` and the run's tools, before any of its steps begins."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fumehood_server.model.nearest import nearest
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.plans.faults import PlanFault, plan_error
from fumehood_server.orchestration.plans.plan import ExecutionPlan, PlanStep
from fumehood_server.orchestration.plans.steps import MapStep, ToolAction
from fumehood_server.orchestration.request import PlanPolicy


def check_plan(plan: ExecutionPlan, policy: PlanPolicy, tools: Collection[str]) -> None:
    """Let a plan through.

    Raises:
        RunFailedError: VALIDATION_RULE_FAILED: the policy forbids it. TOOL_NOT_FOUND: it names a tool that is none of
            `tools`. `details.faults` name each place.
    """
    faults = list(_policy_faults(plan, policy))
    if faults:
        raise plan_error(Code.VALIDATION_RULE_FAILED, faults, reason="plan_policy")
    lost = list(_tool_faults(plan, tools))
    if lost:
        raise plan_error(Code.TOOL_NOT_FOUND, lost)


def _policy_faults(plan: ExecutionPlan, policy: PlanPolicy) -> Iterator[PlanFault]:
    count = len(plan.steps)
    if count > policy.max_steps:
        yield PlanFault("/steps", "max_steps", f"there may be {policy.max_steps} steps, and there are {count}")
    for index, step in enumerate(plan.steps):
        for pointer, kind in step.kinds.items():
            if kind not in policy.allowed_step_kinds:
                allowed = ", ".join(sorted(policy.allowed_step_kinds))
                message = f'no step may be of kind "{kind}": {allowed}'
                yield PlanFault(f"/steps/{index}{pointer}", "allowed_step_kinds", message)
        if policy.require_linear and index and plan.steps[index - 1].name not in step.dependencies:
            message = f'each step follows the one before it: name "{plan.steps[index - 1].name}" in "after"'
            yield PlanFault(f"/steps/{index}", "require_linear", message)


def _tool_faults(plan: ExecutionPlan, tools: Collection[str]) -> Iterator[PlanFault]:
    for index, step in enumerate(plan.steps):
        found = tool_of(step)
        if found is not None and found not in tools:
            hint = nearest(found, tools)
            at = f"/steps/{index}/do/tool" if isinstance(step, MapStep) else f"/steps/{index}/tool"
            yield PlanFault(at, "tool", f'there is no tool "{found}" in this run' + (f"; {hint}" if hint else ""))


def tool_of(step: PlanStep) -> str | None:
    """The tool that a step calls. None: it calls none."""
    action = step.do if isinstance(step, MapStep) else step
    return action.tool if isinstance(action, ToolAction) else None
