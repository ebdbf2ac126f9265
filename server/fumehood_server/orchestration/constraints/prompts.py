"""What a model is told of its contract, and of what is wrong with what it answered."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fumehood_server.orchestration.constraints.contract import Contract
from fumehood_server.orchestration.constraints.faults import OutputFault
from fumehood_server.orchestration.engines.engine import Engine
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.request import Rule

FINAL = "Give the final answer now, from what was said above."
_MAX_TOLD_FAULTS = 20


def instructions(contract: Contract, engine: Engine) -> str:
    """What the model has to know of its contract beside what the engine holds it to. Empty: nothing."""
    asked, parts = contract.asked, []
    if asked.grammar and not engine.constrains_grammar:
        parts.append(f"Answer with text that follows this grammar (GBNF), without anything around it:\n{asked.grammar}")
    elif asked.schema is not None and not engine.constrains_schema:
        parts.append(
            f"Answer with JSON that fits this JSON Schema, without anything around it:\n{contract.schema_json}"
        )
    elif contract.reads_json and asked.schema is None:
        parts.append("Answer with JSON, without anything around it.")
    if asked.rules:
        parts.append("\n".join(["These rules hold for the answer:", *(f"- {_told(each)}" for each in asked.rules)]))
    return "\n\n".join(parts)


def explained(faults: Sequence[OutputFault], contract: Contract, engine: Engine) -> Message:
    """What the model is told of its faults, before it answers anew."""
    lines = [f"- {each}" for each in faults[:_MAX_TOLD_FAULTS]]
    again = instructions(contract, engine)
    text = "\n".join(["That answer can't be used:", *lines, "Answer again, with these faults mended."])
    return Message(role=Role.USER, text=f"{text}\n\n{again}" if again else text)


def _told(rule: Rule) -> str:
    found = []
    if rule.one_of:
        found.append(f"is one of {json.dumps(list(rule.one_of), ensure_ascii=False)}")
    if rule.pattern:
        found.append(f"matches the regular expression {rule.pattern}")
    if rule.minimum is not None:
        found.append(f"is not less than {rule.minimum:g}")
    if rule.maximum is not None:
        found.append(f"is not more than {rule.maximum:g}")
    what = f"the value at {rule.pointer}" if rule.pointer else "the answer"
    return f"{rule.name}: {what} {' and '.join(found) or 'is there'}"
