"""Reads a plan's JSON: bounded before it is parsed, strict as the arguments of calls are, and whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from fumehood_server.model.json_pointer import escaped
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.plans.faults import PlanFault, plan_error
from fumehood_server.orchestration.plans.graph import structure_faults
from fumehood_server.orchestration.plans.plan import ExecutionPlan
from fumehood_server.validation.strict_json import JsonError, parse

MAX_PLAN_CHARS = 256 * 1024
MAX_PLAN_VALUES = 5_000
"""Of any kind: reading so many takes some 20 ms of the event loop in the worst shapes that were found."""

_NO_SPACE = dict.fromkeys(map(ord, " \t\r\n"))
_UNIONS = frozenset({"prompt", "over"})
"""Members after which it names the alternative that it tried."""


def parse_plan(text: str) -> ExecutionPlan:
    """The plan that a JSON text is.

    Raises:
        RunFailedError: CONSTRAINT_JSON_INVALID, CONSTRAINT_SCHEMA_INVALID. `details.faults` name each place.
    """
    if len(text) > MAX_PLAN_CHARS:
        fault = PlanFault("", "size", f"it is longer than {MAX_PLAN_CHARS} characters")
        raise plan_error(Code.CONSTRAINT_JSON_INVALID, [fault])
    if _count_values(text) > MAX_PLAN_VALUES:
        fault = PlanFault("", "size", f"it has more than {MAX_PLAN_VALUES} values")
        raise plan_error(Code.CONSTRAINT_JSON_INVALID, [fault])
    try:
        parse(text)
        plan = ExecutionPlan.model_validate_json(text)
    except JsonError as exc:
        raise plan_error(Code.CONSTRAINT_JSON_INVALID, [PlanFault("", "json", exc.problem)]) from None
    except ValidationError as exc:
        raise plan_error(Code.CONSTRAINT_SCHEMA_INVALID, _shape_faults(exc)) from None
    faults = list(structure_faults(plan))
    if faults:
        raise plan_error(Code.CONSTRAINT_SCHEMA_INVALID, faults)
    return plan


def _count_values(text: str) -> int:
    """How many values a JSON text has, unparsed: what is built of 256 KiB of `[]` takes 45 ms. Of others any number."""
    if text.count(",") + text.count("[") + text.count("{") < MAX_PLAN_VALUES:
        return 0  # whatever of that stands in strings
    marks = "s".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2]).translate(_NO_SPACE)
    containers = marks.count("[") + marks.count("{")
    return 1 + marks.count(",") + containers - marks.count("[]") - marks.count("{}")


def _shape_faults(error: ValidationError) -> Iterator[PlanFault]:
    for each in error.errors(include_input=False, include_url=False, include_context=False):
        message = each["msg"].removeprefix("Value error, ")
        yield PlanFault(_pointer(each["loc"]), each["type"], message)


def _pointer(location: Sequence[str | int]) -> str:
    """The place as a JSON pointer, without what pydantic puts between its parts."""
    parts: list[str] = []
    tagged = False
    for part in location:
        if tagged and isinstance(part, str):
            tagged = False
            continue
        if parts and parts[-1] in _UNIONS and isinstance(part, str):
            break
        parts.append(escaped(str(part)))
        tagged = part == "do" or (isinstance(part, int) and parts[:-1] == ["steps"])
        if len(parts) > 1 and parts[-2] == "prompt":
            break
    return "".join("/" + part for part in parts)
