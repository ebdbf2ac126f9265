"""Schemas of older drafts of JSON Schema, as 2020-12: what they took they still take, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_sdk.adapters.mcp.schema_drafts import MAX_DEPTH, to_2020_12
from fumehood_server.model.schema import SchemaError, check_schema, compile_schema
from hypothesis import given
from hypothesis import strategies as st

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_6 = {"$schema": "http://json-schema.org/draft-06/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
NUMBER = {"type": "number"}
PAIR = {"type": "array", "items": [NUMBER, {"type": "string"}]}


def takes(schema: dict[str, Any], value: Any) -> bool:
    """Whether `value` fits a property with this schema, once it is translated and the sidecar has taken it."""
    dialect = {key: each for key, each in schema.items() if key == "$schema"}
    rule = {key: each for key, each in schema.items() if key not in {"$schema", "definitions"}}
    whole = {**dialect, "type": "object", "properties": {"v": rule}, "definitions": schema.get("definitions", {})}
    made = check_schema(json.dumps(to_2020_12(whole)), arguments=True)
    return compile_schema(json.loads(made)).is_valid({"v": value})


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (DRAFT_7 | PAIR, [1, "a", None], ["a", 1]),
        (PAIR, [1, "a"], [1, 2]),
        (DRAFT_7 | PAIR | {"additionalItems": False}, [1, "a"], [1, "a", 2]),
        (DRAFT_7 | PAIR | {"additionalItems": {"type": "null"}}, [1, "a", None], [1, "a", 2]),
        (DRAFT_7 | {"items": [], "additionalItems": NUMBER}, [1], ["a"]),
        (DRAFT_7 | {"items": NUMBER, "additionalItems": False}, [1, 2, 3], ["a"]),
        (DRAFT_7 | {"anyOf": [{"not": {}}, {"additionalProperties": PAIR}]}, {"a": [1, "a"]}, {"a": ["a"]}),
        (DRAFT_4 | {"minimum": 0, "exclusiveMinimum": True}, 0.5, 0),
        (DRAFT_4 | {"minimum": 0, "exclusiveMinimum": False}, 0, -1),
        (DRAFT_4 | {"maximum": 9, "exclusiveMaximum": True}, 8, 9),
        (DRAFT_7 | {"exclusiveMinimum": 0}, 1, 0),
        (DRAFT_7 | {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1, "b": 2}, {"a": 1}),
        (DRAFT_7 | {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"c": 1, "d": 2}, {"c": 1}),
        (DRAFT_7 | {"$ref": "#/definitions/p", "definitions": {"p": PAIR}}, [1, "a"], ["a"]),
    ],
)
def test_what_an_older_draft_takes_is_taken_and_the_rest_is_not(
    schema: dict[str, Any], fits: object, does_not: object
) -> None:
    assert takes(schema, fits)
    assert not takes(schema, does_not)


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (DRAFT_4 | {"const": 1, "if": True, "then": False, "propertyNames": False, "contains": False}, {"a": [1]}),
        (DRAFT_6 | {"if": True, "then": False}, 1),
        (DRAFT_7 | {"dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False}, {"a": 1}),
        (DRAFT_7 | {"dependentSchemas": {"a": False}, "prefixItems": [False]}, {"a": [1]}),
        (DRAFT_7 | {"contains": NUMBER, "maxContains": 1}, [1, 2]),
        (DRAFT_2019 | {"prefixItems": [False], "dependencies": {"a": ["b"]}}, {"a": [1]}),
        (DRAFT_7 | {"$ref": "#/definitions/x", "required": ["b"], "definitions": {"x": {}}}, {"a": 1}),
    ],
)
def test_what_the_draft_does_not_look_at_refuses_nothing(schema: dict[str, Any], fits: object) -> None:
    assert takes(schema, fits)


def test_what_has_to_be_contained_was_not_counted_up_to_draft_7() -> None:
    rule = {"contains": NUMBER, "minContains": 0}
    assert not takes(DRAFT_7 | rule, ["a"])
    assert takes(DRAFT_2019 | rule, ["a"])


@pytest.mark.parametrize("more", [{}, {"$id": "https://example.com/a"}])
def test_schema_within_that_names_its_draft_is_translated_as_the_whole_is(more: dict[str, str]) -> None:
    for around in ({}, DRAFT_7, DRAFT_2019):
        whole = around | {"type": "object", "properties": {"a": DRAFT_7 | PAIR | {"minContains": 9} | more}}
        rule = compile_schema(json.loads(check_schema(json.dumps(to_2020_12(whole)), arguments=True)))
        assert rule.is_valid({"a": [1, "a"]})
        assert not rule.is_valid({"a": ["a"]})
    later = {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [NUMBER]}
    assert to_2020_12(DRAFT_7 | {"properties": {"a": later}}) == {"properties": {"a": later}}


def test_pointer_into_a_tuple_leads_to_where_the_tuple_is_now() -> None:
    schema = DRAFT_7 | {
        "type": "object",
        "properties": {
            "first": {"$ref": "#/properties/items/items/0"},
            "rest": {"$ref": "#/properties/items/additionalItems"},
            "named": {"$ref": "#/properties/dependencies"},
            "items": PAIR | {"additionalItems": {"type": "null"}},
            "dependencies": {"type": "boolean"},
        },
    }
    rule = compile_schema(json.loads(check_schema(json.dumps(to_2020_12(schema)), arguments=True)))
    assert rule.is_valid({"first": 1, "rest": None, "named": True, "items": [1, "a", None]})
    for wrong in ({"first": "a"}, {"rest": 1}, {"named": 1}):
        assert not rule.is_valid(wrong)


def test_data_and_schemas_of_2020_12_stay_as_they_are() -> None:
    data = {"items": [1], "exclusiveMinimum": True, "dependencies": {"a": ["b"]}}
    kept = {"enum": [data], "const": data, "default": data, "examples": [data], "x-ours": data}
    assert to_2020_12(kept) == kept
    assert to_2020_12({"properties": {"items": {"items": True}, "enum": PAIR}}) == {
        "properties": {"items": {"items": True}, "enum": {"type": "array", "prefixItems": PAIR["items"]}}
    }
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", "dependencies": {"a": ["b"]}}
    assert to_2020_12(named) == named
    assert to_2020_12(DRAFT_7 | {"type": "object"}) == {"type": "object"}


def test_schema_that_is_nested_without_end_is_left_to_the_sidecar_which_refuses_it() -> None:
    deep: dict[str, Any] = PAIR
    for _ in range(MAX_DEPTH):
        deep = {"not": deep}
    with pytest.raises(SchemaError, match="nested deeper"):
        check_schema(json.dumps(to_2020_12(deep | {"type": "object"})), arguments=True)


KEYWORDS = st.sampled_from(
    (
        *("items", "prefixItems", "additionalItems", "exclusiveMinimum", "minimum", "dependencies", "$ref", "$schema"),
        *("dependentSchemas", "dependentRequired", "properties", "allOf", "not", "enum", "a", "$id", "id"),
        *("$recursiveAnchor", "$recursiveRef"),
    )
)
TEXTS = ("#/items/0", "#/", "#/a/²", "#/allOf/-1", "x", "x#/a", "#x", "#", "http://[", "http://[#/a")
DIALECTS = (DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, {"$schema": "https://json-schema.org/draft/2020-12/schema"})
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from([*TEXTS, *(each["$schema"] for each in DIALECTS)])
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=5)
)


@given(ANYTHING)
def test_no_json_makes_it_fail(schema: object) -> None:
    before = json.dumps(schema)
    to_2020_12(schema)
    assert json.dumps(schema) == before, "what a server has listed stays as it was"
