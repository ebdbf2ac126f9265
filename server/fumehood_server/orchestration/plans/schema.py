"""The JSON Schema of a plan, as far as a schema can say what a run takes: its tools, kinds and number of steps."""

from __future__ import annotations

import copy
from collections.abc import Collection
from functools import cache
from typing import Any

from fumehood_server.orchestration.plans.plan import ExecutionPlan
from fumehood_server.orchestration.plans.steps import MAX_STEPS
from fumehood_server.orchestration.request import PlanPolicy

_STEPS = {"infer": "InferStep", "tool": "ToolStep", "validate": "ValidateStep", "map": "MapStep"}
_ACTIONS = {"infer": "InferAction", "tool": "ToolAction"}


@cache
def _whole() -> dict[str, Any]:
    return ExecutionPlan.model_json_schema()


def plan_schema(policy: PlanPolicy, tools: Collection[str]) -> dict[str, Any]:
    """JSON Schema 2020-12 of the plans that a run may take. That steps hang together, it can't say."""
    schema = copy.deepcopy(_whole())
    definitions = schema["$defs"]
    kinds = policy.allowed_step_kinds - (frozenset() if tools else frozenset({"tool"}))
    steps = schema["properties"]["steps"]
    steps["maxItems"] = max(1, min(policy.max_steps, MAX_STEPS))
    steps["items"] = _one_of(_STEPS, kinds)
    definitions["MapStep"]["properties"]["do"] = _one_of(_ACTIONS, kinds)
    for name in ("ToolStep", "ToolAction"):
        definitions[name]["properties"]["tool"] = (
            {"type": "string", "enum": sorted(tools)} if tools else {"type": "string"}
        )
    return schema


def _one_of(names: dict[str, str], kinds: Collection[str]) -> dict[str, Any]:
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for kind, name in names.items() if kind in kinds]}
