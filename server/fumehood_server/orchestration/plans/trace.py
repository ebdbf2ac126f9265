"""The `PlanTrace`: who made a plan and why, and what became of each of its steps."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.orchestration.plans.plan import ExecutionPlan

_MAX_MESSAGE = 500


class StepState(StrEnum):
    """Where a step is, or how it ended."""

    WAITING = "waiting"
    """It has not begun."""
    RUNNING = "running"
    """Under way; in a trace of an ended run: it was cut short."""
    DONE = "done"
    SKIPPED = "skipped"
    """It failed and the plan went on, or what it refers to was skipped."""
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class StepTrace:
    """One step."""

    name: str
    kind: str
    state: StepState = StepState.WAITING
    attempts: int = 0
    """Inferences or calls that it began; checks of a `validate`. Of a `map`: those of all items."""
    items: int | None = None
    """Of a `map`, once its list is read."""
    failed_items: int = 0
    error: CallError | None = None
    """Why it ended, or what its last attempt but one failed with."""

    def to_json(self) -> dict[str, Any]:
        """As the trace holds it."""
        found: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "state": self.state.value,
            "attempts": self.attempts,
        }
        if self.items is not None:
            found |= {"items": self.items, "failed_items": self.failed_items}
        if self.error is not None:
            found["error"] = {"code": self.error.code.value, "message": self.error.message[:_MAX_MESSAGE]}
        return found


@dataclass(slots=True, kw_only=True)
class PlanTrace:
    """One plan, as it is carried out."""

    planner_id: str
    """`request`, or `model` and the engine's name."""
    rationale: str = ""
    planning_attempts: int = 0
    """Inferences that it took."""
    created_at_s: float = field(default_factory=time.time)
    """Of this carrying out: a run that goes on after a crash makes its trace anew."""
    steps: Mapping[str, StepTrace] = field(default_factory=dict)
    """In the plan's order."""

    def to_json(self) -> str:
        """As `SystemResponse.plan_trace_json` has it."""
        created = datetime.fromtimestamp(self.created_at_s, UTC).isoformat(timespec="milliseconds")
        return json.dumps(
            {
                "planner_id": self.planner_id,
                "planning_attempts": self.planning_attempts,
                "rationale": self.rationale,
                "created_at": created.replace("+00:00", "Z"),
                "step_count": len(self.steps),
                "steps": [each.to_json() for each in self.steps.values()],
            },
            ensure_ascii=False,
        )

    def take(self, plan: ExecutionPlan) -> None:
        """Keep what the plan says of itself."""
        self.rationale = plan.rationale
        self.steps = {each.name: StepTrace(name=each.name, kind=each.kind) for each in plan.steps}
