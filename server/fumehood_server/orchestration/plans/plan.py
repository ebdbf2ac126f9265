"""An `ExecutionPlan`: steps, and what comes of them. Made by `parse_plan`, which checks how they hang together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from fumehood_server.orchestration.plans.references import Reference
from fumehood_server.orchestration.plans.steps import (
    MAX_STEPS,
    InferAction,
    InferStep,
    MapStep,
    Part,
    Step,
    ToolStep,
    ValidateStep,
)
from fumehood_server.orchestration.request import OutputContract

MAX_CHECKS = 8
"""Of one answer, one after the other, for it to be asked for again. Each check by a model is named by a letter."""

PlanStep = InferStep | ToolStep | ValidateStep | MapStep


@dataclass(frozen=True, slots=True)
class Source:
    """A model's whole answer, and what it was held against up to here: by it, a model can be asked for another."""

    step: InferStep
    contracts: tuple[OutputContract, ...]
    """In the order in which they are checked."""
    retries: int
    """Of the last step on the way."""


class ExecutionPlan(Part):
    """Steps, and what comes of them."""

    rationale: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Why these steps."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MAX_STEPS)]
    output: Any = None
    """JSON with references. None: the output of the last step."""

    @property
    def output_template(self) -> Any:  # noqa: ANN401 - any JSON value
        """What the plan's output is made of."""
        return {"$from": self.steps[-1].name} if self.output is None else self.output

    @property
    def needs_engine(self) -> bool:
        """Whether a step asks a model."""
        return any("infer" in step.kinds.values() or _asks(step) for step in self.steps)

    @property
    def contracts(self) -> tuple[OutputContract, ...]:
        """What its steps hold outputs against."""
        actions = [step.do if isinstance(step, MapStep) else step for step in self.steps]
        validated = tuple(step.contract for step in self.steps if isinstance(step, ValidateStep))
        return validated + tuple(each.contract for each in actions if isinstance(each, InferAction))

    def source_of(self, reference: Reference | None) -> Source | None:
        """The answer of a model that a reference stands for. None: it stands for something else."""
        steps = {step.name: step for step in self.steps}
        contracts: list[OutputContract] = []
        retries: int | None = None
        for _ in range(MAX_CHECKS):
            step = steps.get(reference.step or "") if reference is not None and not reference.pointer else None
            retries = step.retries if step is not None and retries is None else retries
            if isinstance(step, InferStep):
                return Source(step, (step.contract, *reversed(contracts)), retries or 0)
            if not isinstance(step, ValidateStep):
                return None
            contracts.append(step.contract)
            reference = step.subject
        return None


def _asks(step: PlanStep) -> bool:
    return isinstance(step, ValidateStep) and bool(step.semantic_check)
