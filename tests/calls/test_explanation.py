"""What is said of arguments that fit no branch of a union."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.model.call import CallError
from fumehood_server.validation.schemas import Validators

from tests.calls.documents import check_result, prepare_arguments
from tests.calls.fake import SPEC, answered, tool

COMPARISON = {
    "type": "object",
    "properties": {"op": {"enum": ["eq", "gt", "lt"]}, "value": {"type": "number"}},
    "required": ["op", "value"],
}
GROUP = {
    "type": "object",
    "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/filter"}}},
    "required": ["all"],
    "additionalProperties": False,
}
DEFINITIONS = {"filter": {"anyOf": [COMPARISON, GROUP, {"type": "string"}]}}
CIRCLE = {
    "type": "object",
    "properties": {"shape": {"const": "circle"}, "r": {"type": "number"}},
    "required": ["shape"],
}
SQUARE = {
    "type": "object",
    "properties": {"shape": {"const": "square"}, "a": {"type": "number"}},
    "required": ["shape"],
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "filters": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
    "shape": {"oneOf": [CIRCLE, SQUARE]},
    "size": {"anyOf": [{"type": "integer"}, {"enum": ["small", "large"]}, {"type": "null"}]},
    "name": {"anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}]},
    "number": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "who": {"anyOf": [{"required": ["id"]}, {"required": ["email"]}], "type": "object"},
}


def told(arguments: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Pointer, rule and message of each fault."""
    schema = json.dumps({"type": "object", "properties": SCHEMAS, "$defs": DEFINITIONS})
    refused = prepare_arguments(tool(schema=schema), json.dumps(arguments), Validators())
    assert isinstance(refused, CallError)
    assert all(fault["pointer"] + ": " + fault["message"] in refused.message for fault in refused.details["arguments"])
    return [(each["pointer"], each["rule"], each["message"]) for each in refused.details["arguments"]]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            {"filters": ["a", {"op": "is", "value": 1}]},
            ("/filters/1/op", "enum", 'must be one of "eq", "gt", "lt"'),
        ),
        ({"filters": [{"op": "eq"}]}, ("/filters/0/value", "required", '"value" is required and missing')),
        (
            {"filters": [{"all": ["a", {"all": [{"op": "is", "value": 1}]}]}]},
            ("/filters/0/all/1/all/0/op", "enum", 'must be one of "eq", "gt", "lt"'),
        ),
        ({"shape": {"shape": "circle", "r": "x"}}, ("/shape/r", "type", 'the value is not of type "number"')),
        ({"shape": {"shape": "cube"}}, ("/shape/shape", "enum", 'must be one of "circle", "square"')),
        ({"size": "huge"}, ("/size", "anyOf", 'must be of type integer or null, or one of "small", "large"')),
        ({"name": "al"}, ("/name", "minLength", "the value is shorter than 3 characters")),
        ({"number": 5}, ("/number", "oneOf", "fits more than one of the alternatives, and must fit exactly one")),
        ({"who": {}}, ("/who", "anyOf", '"id" or "email" is required and missing')),
    ],
)
def test_the_fault_in_the_branch_that_fits_best_is_named(
    arguments: dict[str, Any], fault: tuple[str, str, str]
) -> None:
    assert told(arguments) == [fault]


def test_two_faults_in_one_branch_are_both_named() -> None:
    found = told({"filters": [{"op": "is", "value": "x"}]})
    assert {path for path, _, _ in found} == {"/filters/0/op", "/filters/0/value"}


def test_output_is_explained_alike() -> None:
    schema = json.dumps({"type": "object", "properties": SCHEMAS, "$defs": DEFINITIONS})
    result = answered(details_json='{"filters":[{"op":"is","value":1}]}')
    checked = check_result(tool(output_schema=schema), SPEC, result, Validators())
    assert checked.error is not None
    assert "/filters/0/op: must be one of" in checked.error.message
