"""Checks the argument template of a `cli` tool against the tool's input schema, by the SDK's own parser."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fumehood_sdk.adapters.template import Template, TemplateError

from fumehood_server.model.nearest import nearest
from fumehood_server.plugins.definitions import FieldProblem


def check_template(argv: Sequence[object], input_schema_json: str) -> tuple[FieldProblem, ...]:
    """What is wrong with a template: malformed elements, unknown names, values that may be missing."""
    schema = json.loads(input_schema_json)
    properties = schema.get("properties", {})
    try:
        problems = Template(argv).problems(properties, schema.get("required", []))
    except TemplateError as exc:
        return (FieldProblem(exc.place, exc.problem),)
    return tuple(
        FieldProblem(place, problem, "" if name in properties else nearest(name, properties))
        for place, name, problem in problems
    )
