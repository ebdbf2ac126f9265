"""Checks the templates of a `cli` tool against the tool's input schema, by the SDK's own parser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fumehood_sdk.adapters.template import NO_TEXT, Template, TemplateError, TextTemplate, is_text

from fumehood_server.model.nearest import nearest
from fumehood_server.plugins.definitions import FieldProblem


def check_template(
    argv: Sequence[object], input_schema_json: str, texts: Mapping[str, str]
) -> tuple[FieldProblem, ...]:
    """What is wrong with a template: malformed elements, unknown names, values that may be missing.

    `texts` are those beside the arguments, by their keys: stdin, variables, the working folder. A value that is missing
    leaves such a text out.
    """
    schema = json.loads(input_schema_json)
    properties = schema.get("properties", {})
    try:
        problems = Template(argv).problems(properties, schema.get("required", []))
        for place, text in texts.items():
            for name in TextTemplate(text, place).names:
                if name not in properties:
                    problems.append((place, name, f'"{name}" is not a property of the input schema'))
                elif not is_text(properties[name], arrays=False):
                    problems.append((place, name, f'"{name}" is {NO_TEXT}: it can\'t stand there'))
    except TemplateError as exc:
        return (FieldProblem(exc.place, exc.problem),)
    return tuple(
        FieldProblem(place, problem, "" if name in properties else nearest(name, properties))
        for place, name, problem in problems
    )
