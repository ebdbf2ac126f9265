"""The fields that `tools NAME` lists, wherever in a schema they are said."""

from __future__ import annotations

from typing import Any

import pytest
from fumehood_server.cli.schema import fields

OP = {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]}
LIMIT = {"type": "object", "properties": {"limit": {"type": "integer"}}}


def names(schema: dict[str, Any]) -> list[str]:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"limit": LIMIT}}
    return [each.name for each in fields(whole)]


@pytest.mark.parametrize(
    ("schema", "within"),
    [
        (OP, ["x.op"]),
        ({"allOf": [OP]}, ["x.op"]),
        ({"allOf": [OP, {"$ref": "#/$defs/limit"}]}, ["x.op", "x.limit"]),
        ({**OP, "allOf": [LIMIT]}, ["x.op", "x.limit"]),
        ({"allOf": [OP, {"anyOf": [LIMIT, {"type": "null"}]}]}, ["x.op", "x.limit"]),
        ({"type": "array", "items": {"allOf": [OP, LIMIT]}}, ["x[].op", "x[].limit"]),
        ({"prefixItems": [{"type": "number"}, OP], "items": LIMIT}, ["x[0]", "x[1]", "x[1].op", "x[].limit"]),
        ({"patternProperties": {"^a": OP}}, ["x./^a/", "x./^a/.op"]),
    ],
)
def test_fields_within_a_parameter_are_listed_by_their_path(schema: dict[str, Any], within: list[str]) -> None:
    assert names(schema) == ["x", *within]


def test_a_schema_that_is_a_part_of_itself_ends() -> None:
    itself: dict[str, Any] = {"$ref": "#/properties/x"}
    found = names({"allOf": [itself, OP, itself], "prefixItems": [itself]})
    assert {"x", "x.op", "x[0]", "x[0].op"} <= set(found)
    assert len(found) <= 200
