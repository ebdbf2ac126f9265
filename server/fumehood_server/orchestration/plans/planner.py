"""Planners: a plan comes with the request, or a model makes it and mends what is wrong with it, a few times."""

from __future__ import annotations

from typing import Protocol

from fumehood_server.model.call import CallError
from fumehood_server.orchestration.context import RunContext
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.plans.asking import Asker, Question, Said
from fumehood_server.orchestration.plans.parsing import parse_plan
from fumehood_server.orchestration.plans.plan import ExecutionPlan
from fumehood_server.orchestration.plans.policy import check_plan
from fumehood_server.orchestration.plans.prompt import planning_instructions
from fumehood_server.orchestration.plans.schema import plan_schema
from fumehood_server.orchestration.plans.trace import PlanTrace

MAX_ATTEMPTS = 3
"""Inferences that a model may take to make one plan."""

_FENCE = "```"


class Planner(Protocol):
    """Makes a plan of a request."""

    @property
    def planner_id(self) -> str:
        """As the plan's trace names it."""

    async def create_plan(self, run: RunContext, trace: PlanTrace) -> ExecutionPlan:
        """A plan that `parse_plan` and `check_plan` let through.

        Raises:
            RunFailedError: there is none.
        """


class RequestPlanner:
    """Takes the plan that somebody wrote, from the request."""

    planner_id = "request"

    async def create_plan(self, run: RunContext, trace: PlanTrace) -> ExecutionPlan:
        """See `Planner`."""
        del trace
        return _read(run, run.request.plan_json)


class ModelPlanner:
    """Asks the run's engine, and tells it what is wrong with its plan."""

    def __init__(self, run: RunContext, asker: Asker) -> None:
        """`asker` asks in that run."""
        self._asker = asker
        self.planner_id = f"model:{run.engine.name}"

    async def create_plan(self, run: RunContext, trace: PlanTrace) -> ExecutionPlan:
        """See `Planner`."""
        policy = run.request.plan_policy
        schema = plan_schema(policy, [tool.name for tool in run.tools])
        told = None if run.engine.constrains_schema else schema
        instructions = Message(role=Role.SYSTEM, text=planning_instructions(policy, run.tools, told))
        question = Question(
            messages=(instructions, *run.messages, Message(role=Role.USER, text="Make the plan for this.")),
            most=MAX_ATTEMPTS,
            name_of="plan-{}".format,
            schema=schema,
        )
        said: Said | None = None
        error: CallError | None = None
        while True:
            trace.planning_attempts += 1
            said = await self._asker.ask(question, trace.planning_attempts, said, error)
            try:
                return _read(run, _unfenced(said.text))
            except RunFailedError as exc:
                if trace.planning_attempts == MAX_ATTEMPTS:
                    raise
                error = exc.error


def _read(run: RunContext, text: str) -> ExecutionPlan:
    plan = parse_plan(text)
    check_plan(plan, run.request.plan_policy, frozenset(tool.name for tool in run.tools))
    return plan


def _unfenced(text: str) -> str:
    """What stands in the Markdown fence around the whole answer, which models like to give."""
    lines = text.strip().splitlines()
    fenced = len(lines) > 2 and lines[0].startswith(_FENCE) and lines[-1] == _FENCE  # noqa: PLR2004 - the fences and a plan
    return "\n".join(lines[1:-1]) if fenced else text
