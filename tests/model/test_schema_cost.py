"""Schemas and documents that would hold up the event loop are refused or answered in short. Nothing here measures time:
what takes too long takes hours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.model.call import CallError
from fumehood_server.model.schema import SchemaError, canonical_json, check_schema
from fumehood_server.model.schema_cost import CEILING, visits
from fumehood_server.model.schema_graph import MAX_SUBSCHEMAS
from fumehood_server.model.taxonomy import Code
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.schemas import Validators
from hypothesis import given
from hypothesis import strategies as st

from tests.calls.documents import check_result, prepare_arguments
from tests.calls.fake import SPEC, answered, tool

STRINGS = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}
NUMBERS = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}


def doubling(levels: int, *, leaf: str = "object") -> dict[str, Any]:
    """Each definition refers twice to the next: one value is looked at 2^levels times."""
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": twice | {f"d{levels}": {"type": leaf}}}


def branching() -> dict[str, Any]:
    """Each level of the document is looked at by two definitions, each of which looks at the next level by both."""
    both = [{"properties": {"a": {"$ref": f"#/$defs/{name}"}}} for name in ("n", "m")]
    definition = {"type": "object", "anyOf": both}
    return {"type": "object", "$ref": "#/$defs/n", "$defs": {"n": definition, "m": definition}}


def nested(depth: int, leaf: object) -> dict[str, Any]:
    value: Any = leaf
    for _ in range(depth):
        value = {"a": value}
    return dict(value)


def refused(schema: dict[str, Any], arguments: object) -> list[dict[str, str]]:
    error = prepare_arguments(tool(schema=json.dumps(schema)), json.dumps(arguments), Validators())
    assert isinstance(error, CallError)
    assert error.code is Code.TOOL_EXECUTION_FAILED
    found: list[dict[str, str]] = error.details["arguments"]
    return found


@pytest.mark.parametrize(
    "schema",
    [
        doubling(40),
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": doubling(40)["$defs"]},
        {"type": "object", "$ref": "#"},
        {"type": "object", "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}},
        {"type": "object", "$dynamicAnchor": "me", "anyOf": [{"$dynamicRef": "#me"}]},
        {"type": "object", "properties": {str(n): True for n in range(MAX_SUBSCHEMAS)}},
    ],
)
def test_a_schema_that_is_never_done_with_a_value_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        check_schema(json.dumps(schema), arguments=True)


@pytest.mark.parametrize(
    "schema",
    [
        doubling(8),
        branching(),
        STRINGS,
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/definitions/node"}},
            "definitions": {"node": {"properties": {"children": {"items": {"$ref": "#/definitions/node"}}}}},
        },
        {"type": "object", "properties": {"x": {"$ref": "#here"}}, "$defs": {"a~b/c d": {"$anchor": "here"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/a~0b~1c%20d"}}, "$defs": {"a~b/c d": {}}},
    ],
)
def test_a_schema_of_reasonable_cost_is_taken(schema: dict[str, Any]) -> None:
    check_schema(json.dumps(schema), arguments=True)


def test_visits_are_counted_by_depth() -> None:
    assert visits({"type": "object"}) == (1, 0)
    assert visits(STRINGS) == (1, 1, 1, 0)
    assert 2**8 <= visits(doubling(8))[0] < 2**11
    assert visits(doubling(60))[0] == CEILING
    deep = visits(branching())
    assert deep[10] * 2 == deep[11] < deep[-1] == CEILING


def test_many_faults_are_one_where_listing_them_would_take_long() -> None:
    (few,) = refused(STRINGS, {"names": ["x", 1]})
    assert few["pointer"] == "/names/1"
    (many,) = refused(STRINGS, {"names": [1] * PROCESS.error_visits})
    assert (many["pointer"], many["rule"]) == ("", "size")


def test_large_arguments_are_not_mended() -> None:
    made = tool(schema=json.dumps(NUMBERS))
    assert prepare_arguments(made, json.dumps({"n": ["1", 2]}), Validators()) == '{"n":[1,2]}'
    assert refused(NUMBERS, {"n": ["1"] * 1000})
    large = json.dumps({"n": [1] * 100_000})
    assert prepare_arguments(made, large, Validators()) == large


def test_a_deep_document_is_weighed_against_a_schema_that_branches() -> None:
    (fault,) = refused(branching(), nested(60, 5))
    assert fault["rule"] == "size"
    shallow = json.dumps(nested(4, {}))
    assert prepare_arguments(tool(schema=json.dumps(branching())), shallow, Validators()) == shallow


@pytest.mark.parametrize("details", [nested(60, 5), nested(12, 5)])
def test_a_plugin_cannot_hold_up_the_sidecar_with_its_own_output(details: dict[str, Any]) -> None:
    made = tool(output_schema=json.dumps(branching()))
    checked = check_result(made, SPEC, answered("", details_json=json.dumps(details)), Validators())
    assert checked.error is not None
    assert checked.error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert checked.error.details["output"][0]["rule"] == "size"


WHOLE = st.integers(0, 99)
SCHEMAS = st.recursive(
    st.sampled_from([True, {}, {"type": "string"}, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": "#"}]),
    lambda inner: st.dictionaries(
        st.sampled_from(["allOf", "anyOf", "properties", "items", "not", "patternProperties", "prefixItems"]),
        st.one_of(inner, st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)),
        max_size=3,
    ),
    max_leaves=12,
)


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_any_schema_is_counted_within_bounds(top: object, a: object, b: object) -> None:
    schema = {"allOf": [top], "$defs": {"a": a, "b": b}}
    counts = visits(schema)
    assert counts[0] >= 1
    assert all(0 <= count <= CEILING for count in counts)
    assert PROCESS.visits < CEILING


def test_choices_that_are_compared_one_by_one_count_with_their_size() -> None:
    words = [f"word {number}" for number in range(160)]
    assert visits({"enum": words})[0] == 11
    assert visits({"enum": [{"a": [1, 2]}] * 100})[0] == 401
    assert visits({"const": {"a": [1, 2]}})[0] == 5
    objects = {"type": "object", "properties": {"n": {"anyOf": [{"enum": [{"a": n, "b": [n]} for n in range(3_000)]}]}}}
    with pytest.raises(SchemaError, match="looks more than"):
        check_schema(json.dumps(objects), arguments=True)


def test_an_error_that_names_many_choices_is_told_once_and_not_for_each_value() -> None:
    schema = {"type": "object", "properties": {"n": {"items": {"enum": [f"word {n}" for n in range(10_000)]}}}}
    (one,) = refused(schema, {"n": ["no word"]})
    assert one["pointer"] == "/n/0"
    (many,) = refused(schema, {"n": ["no word"] * 100})
    assert "to say what" in many["message"]


WHOLE = st.integers(0, 99)
SCHEMAS = st.recursive(
    st.booleans() | st.builds(lambda choices: {"enum": choices}, st.lists(WHOLE | st.lists(WHOLE))),
    lambda each: (
        st.dictionaries(st.sampled_from(["not", "items", "contains", "if"]), each)
        | st.builds(lambda many: {"anyOf": many}, st.lists(each, min_size=1))
        | st.builds(lambda many: {"properties": many}, st.dictionaries(st.sampled_from("abc"), each))
    ),
)


@given(st.builds(lambda each: {"not": each}, SCHEMAS))
def test_without_references_no_value_is_visited_more_often_than_its_schema_has_characters(
    schema: dict[str, Any],
) -> None:
    assert max(visits(schema)) <= len(canonical_json(schema))
