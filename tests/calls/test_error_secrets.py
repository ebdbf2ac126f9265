"""What the errors of arguments tell of the arguments: places and rules, never a value, and names where they must."""

from __future__ import annotations

import json
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.validation.schemas import Validators

from tests.calls.documents import prepare_arguments
from tests.calls.fake import tool

SECRET = "SECRETVALUE"  # noqa: S105 - stands for one
NUMBER = 75_550_123
LONG_NAME = "n" * 10_000

Schema = dict[str, Any]

BROKEN_BY_A_VALUE: dict[str, tuple[Schema | bool, object]] = {
    "type": ({"type": ["integer", "null"]}, SECRET),
    "enum": ({"enum": [1, "a"]}, SECRET),
    "const": ({"const": "a"}, SECRET),
    "multipleOf": ({"multipleOf": 7}, NUMBER),
    "maximum": ({"maximum": 7}, NUMBER),
    "exclusiveMaximum": ({"exclusiveMaximum": 7}, NUMBER),
    "minimum": ({"minimum": 7}, -NUMBER),
    "exclusiveMinimum": ({"exclusiveMinimum": 7}, -NUMBER),
    "maxLength": ({"maxLength": 2}, SECRET),
    "minLength": ({"minLength": 200}, SECRET),
    "pattern": ({"pattern": "^x$"}, SECRET),
    "items": ({"items": False}, [SECRET, SECRET]),
    "prefixItems": ({"prefixItems": [{"type": "integer"}, False]}, [SECRET, SECRET]),
    "contains": ({"contains": {"type": "integer"}}, [SECRET, SECRET]),
    "minContains": ({"contains": {"type": "string"}, "minContains": 3}, [SECRET, SECRET]),
    "maxContains": ({"contains": {"type": "string"}, "maxContains": 1}, [SECRET, SECRET]),
    "uniqueItems": ({"uniqueItems": True}, [SECRET, SECRET]),
    "maxItems": ({"maxItems": 1}, [SECRET, SECRET]),
    "minItems": ({"minItems": 4}, [SECRET, SECRET]),
    "unevaluatedItems": ({"unevaluatedItems": False}, [SECRET, SECRET]),
    "maxProperties": ({"maxProperties": 1}, {"k": SECRET, "l": SECRET}),
    "minProperties": ({"minProperties": 4}, {"k": SECRET}),
    "required": ({"required": ["q"]}, {"k": SECRET}),
    "dependentRequired": ({"dependentRequired": {"k": ["q"]}}, {"k": SECRET}),
    "dependentSchemas": ({"dependentSchemas": {"k": {"properties": {"k": {"type": "null"}}}}}, {"k": SECRET}),
    "properties": ({"properties": {"k": {"const": 1}}}, {"k": SECRET}),
    "patternProperties": ({"patternProperties": {"^k": False}}, {"k": SECRET}),
    "additionalProperties": ({"properties": {}, "additionalProperties": False}, {"k": SECRET}),
    "unevaluatedProperties": ({"unevaluatedProperties": {"type": "integer"}}, {"k": SECRET}),
    "propertyNames": ({"propertyNames": {"pattern": "^x$"}}, {"k": SECRET}),
    "not": ({"not": {"type": "string"}}, SECRET),
    "false": (False, SECRET),
    "allOf": ({"allOf": [{"not": {"type": "string"}}]}, SECRET),
    "anyOf": ({"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^x"}]}, SECRET),
    "oneOf": ({"type": "string", "oneOf": [{"minLength": 2}, {"minLength": 1}]}, SECRET),
    "if": ({"if": {"type": "string"}, "then": {"maxLength": 2}}, SECRET),
    "else": ({"if": {"type": "null"}, "else": {"pattern": "^x"}}, SECRET),
    "$ref": ({"$ref": "#/$defs/null"}, SECRET),
    "$dynamicRef": ({"$dynamicRef": "#null"}, SECRET),
}
NEVER_BROKEN: dict[str, Schema] = {
    "format": {"format": "ipv4"},
    "contentEncoding": {"contentEncoding": "base64"},
    "contentMediaType": {"contentMediaType": "application/json"},
    "contentSchema": {"contentMediaType": "application/json", "contentSchema": {"type": "integer"}},
}
"""Annotations, by the standard. Should they be checked one day, this says so."""

RULES_OF_NAMES: dict[str, Schema | bool] = {
    "pattern": {"pattern": "^x$"},
    "maxLength": {"maxLength": 1},
    "minLength": {"minLength": 100},
    "enum": {"enum": ["a", "b"]},
    "const": {"const": "a"},
    "type": {"type": "integer"},
    "not": {"not": {"pattern": "^S"}},
    "anyOf": {"anyOf": [{"pattern": "^x"}, {"maxLength": 2}]},
    "oneOf": {"oneOf": [{"minLength": 2}, {"pattern": "^S"}]},
    "allOf": {"allOf": [{"pattern": "^x"}]},
    "if": {"if": {"minLength": 2}, "then": {"pattern": "^x"}},
    "$ref": {"$ref": "#/$defs/null"},
    "false": False,
}


def refusal(schema: Schema | bool, value: object) -> CallError | str:
    """Of the argument `x`."""
    whole = {"properties": {"x": schema}, "$defs": {"null": {"$dynamicAnchor": "null", "type": "null"}}}
    return prepare_arguments(tool(schema=json.dumps(whole)), json.dumps({"x": value}), Validators())


def told(error: CallError) -> str:
    return error.message + json.dumps(error.details)


def test_no_keyword_tells_the_value() -> None:
    wrong = dict[str, object]()
    for keyword, (schema, value) in BROKEN_BY_A_VALUE.items():
        error = refusal(schema, value)
        if not isinstance(error, CallError) or any(each in told(error) for each in (SECRET, str(NUMBER))):
            wrong[keyword] = error
    assert not wrong
    assert all(isinstance(refusal(schema, SECRET), str) for schema in NEVER_BROKEN.values())


def test_no_rule_of_names_tells_the_name() -> None:
    wrong = dict[str, object]()
    for keyword, schema in RULES_OF_NAMES.items():
        error = refusal({"type": "object", "propertyNames": schema}, {SECRET: 1})
        if (
            not isinstance(error, CallError)
            or SECRET in told(error)
            or error.details["arguments"][0]["pointer"] != "/x"
            or (schema is not False and not error.details["arguments"][0]["message"].startswith("a property's name "))
        ):
            wrong[keyword] = error
    assert not wrong


def test_a_rule_of_names_is_named_with_what_it_takes() -> None:
    error = refusal({"type": "object", "propertyNames": {"enum": ["a", "b"]}}, {SECRET: 1})
    assert isinstance(error, CallError)
    message = 'a property\'s name must be one of "a", "b"'
    assert error.details["arguments"] == [{"pointer": "/x", "rule": "propertyNames", "message": message}]


def test_names_are_told_where_a_caller_must_find_them_and_cut() -> None:
    for schema in ({"additionalProperties": False, "properties": {}}, {"unevaluatedProperties": False}):
        error = refusal({"type": "object", "properties": {"k": {}}} | schema, {LONG_NAME: SECRET, "other": SECRET})
        assert isinstance(error, CallError)
        entries = error.details["arguments"]
        assert ("/x/other" in {each["pointer"] for each in entries}) == (len(entries) == 2)
        assert max(len(text) for each in entries for text in each.values()) <= 300
        assert SECRET not in told(error)
