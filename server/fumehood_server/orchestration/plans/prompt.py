"""What a model is told that is to make a plan: the steps' shapes, the policy, and the tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from fumehood_server.orchestration.engines.engine import OfferedTool
from fumehood_server.orchestration.request import PlanPolicy

MAX_DESCRIPTION_CHARS = 1000
MAX_PARAMETERS_CHARS = 4000
"""Of one tool: a longer schema is left out, and the tool's own check of its arguments is what is left."""
MAX_TOOLS_CHARS = 128 * 1024
"""Of all of them. What is beyond is named without its schema."""

_HEAD = """\
You make a plan. You don't carry it out: a program does, step by step. Answer with one JSON object
and nothing beside it:
{"rationale": "why these steps", "steps": [...], "output": {"$from": "the step whose output is the answer"}}

Each step has a "name" of its own, of a-z, 0-9 and "-", and a "kind":
"""
_KINDS = {
    "tool": """\
- "tool" calls a tool: {"name": "find", "kind": "tool", "tool": "find_files", "arguments": {"folder": "notes"}}
""",
    "infer": """\
- "infer" asks a model, who sees the conversation: {"name": "sum-up", "kind": "infer", "prompt": ["Sum this up: ",
  {"$from": "find"}]}. With "output": {"schema": {"type": "array"}} it answers in JSON.
""",
    "map": """\
- "map" does one thing for each item of a list: {"name": "read", "kind": "map", "over": {"$from": "find", "pointer":
  "/paths"}, "do": {"kind": "tool", "tool": "read_file", "arguments": {"path": {"$item": ""}}}}. Its output is a list.
""",
    "validate": """\
- "validate" checks an output:
  {"name": "check", "kind": "validate", "of": {"$from": "sum-up"}, "schema": {"type": "string"}}
""",
}
_TAIL = """\
{"$from": "step", "pointer": "/a/0"} stands for a step's output or a part of it, by JSON pointer; the step that has it
comes after the step that it names. "after": ["step"] makes a step come after another without using its output.
Steps that don't wait for one another are carried out at once. "on_failure": "skip" goes on without a step that failed.
"""


def planning_instructions(policy: PlanPolicy, tools: Iterable[OfferedTool], schema: dict[str, Any] | None) -> str:
    """The instructions. `schema` is told where the engine can't hold its decoding to it."""
    kinds = [text for kind, text in _KINDS.items() if kind in policy.allowed_step_kinds]
    lines = [_HEAD, *kinds, _TAIL, f"At most {policy.max_steps} steps.\n"]
    if policy.require_linear:
        lines.append("Each step comes after the one before it in the list: no two are carried out at once.\n")
    if schema is not None:
        lines.append("The plan fits this JSON Schema: " + _compact(schema) + "\n")
    lines.append("\nTools, one a line, with the JSON Schema of their arguments:\n")
    return "".join((*lines, *_tool_lines(tools)))


def _tool_lines(tools: Iterable[OfferedTool]) -> Iterator[str]:
    left = MAX_TOOLS_CHARS
    for tool in tools:
        fields: dict[str, Any] = {"tool": tool.name}
        parameters = _compact(tool.parameters)
        whole = fields | {"description": tool.description[:MAX_DESCRIPTION_CHARS]}
        if len(parameters) <= MAX_PARAMETERS_CHARS:
            whole["arguments"] = tool.parameters
        line = _compact(whole)
        line = line if len(line) <= left else _compact(fields)
        left -= len(line)
        yield line + "\n"


def _compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
