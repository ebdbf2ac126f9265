"""What a schema looks at is counted as the engine looks at it, and refused by name where that can't be told."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import jsonschema_rs
import pytest
from fumehood_server.model.schema import SchemaError, check_schema, compile_schema
from fumehood_server.model.schema_cost import CEILING, visits
from fumehood_server.model.schema_graph import SchemaCostError

LEVELS = 26
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
EVERY_DOCUMENT = ({"k": 1}, {"k": {"k": 1}}, [1], [1, 2], ["x"], "x", 1, {})


def doubling(keyword: str, *, names: tuple[str, ...] = (), to: str = "#/$defs/d{}", levels: int = LEVELS) -> Any:
    """Definitions each of which asks the next one twice about the same value."""

    def twice(level: int) -> dict[str, Any]:
        target = {"$ref": to.format(level + 1)}
        return {keyword: dict.fromkeys(names, target) if names else [target, target]}

    return {f"d{level}": twice(level) for level in range(levels)} | {f"d{levels}": {}}


def anchored(definitions: dict[str, Any]) -> dict[str, Any]:
    return {name: {"$anchor": name, **each} for name, each in definitions.items()}


def part(**more: Any) -> dict[str, Any]:
    """A schema whose references mean the cheap definitions, unless `#` means the part that they stand in."""
    cheap = {f"d{level}": {} for level in range(LEVELS + 1)}
    inner = {"$defs": doubling("allOf"), "$ref": "#/$defs/d0"} | more
    return {"$defs": {"e": inner, **cheap}, "$ref": "#/$defs/e"}


def nested(schema: dict[str, Any], levels: int) -> dict[str, Any]:
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def unevaluated(levels: int, keyword: str = "unevaluatedProperties") -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {keyword: False, "allOf": [schema]}
    return schema


MARKED = {"unevaluatedProperties": False, "$ref": "#/$defs/d0"}

HOSTILE = {
    "dependencies": {
        "dependencies": {"k": {"$ref": "#/$defs/d0"}},
        "$defs": doubling("dependencies", names=("k", "l")),
    },
    "a part with $id": part(**{"$id": "urn:x"}),
    "a part of another draft": part(**{"$schema": DRAFT_7, "$id": "urn:x"}),
    "a part referred to by a pointer into it": {
        "$defs": {"e": {"$id": "urn:x", "$defs": doubling("allOf")}, **{f"d{n}": {} for n in range(LEVELS + 1)}},
        "$ref": "#/$defs/e/$defs/d0",
    },
    "a part with anchors": {
        "$defs": {
            "e": {"$id": "urn:x", "$ref": "#d0", "$defs": anchored(doubling("allOf", to="#d{}"))},
            **anchored({f"d{level}": {} for level in range(LEVELS + 1)}),
        },
        "$ref": "#/$defs/e",
    },
    "a part with $id, and a pointer from it": {
        "$defs": {"e": {"$id": "urn:x", "allOf": [{"$ref": "#/$defs/d0"}]}, **doubling("allOf")},
        "$ref": "#/$defs/e",
    },
    "the same anchor twice": {
        "$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x", "$ref": "#/$defs/d0"}, **doubling("allOf")},
        "$ref": "#x",
    },
    "an anchor where no value is looked at": {
        "$defs": {"a": {"$anchor": "x"}, **doubling("allOf")},
        "contentSchema": {"$anchor": "x", "$ref": "#/$defs/d0"},
        "$ref": "#x",
    },
    "what stands under no keyword": nested({"$ref": "#/x/d0"}, 6) | {"x": doubling("allOf", to="#/x/d{}")},
    "nested unevaluatedProperties": unevaluated(LEVELS),
    "nested unevaluatedItems": unevaluated(LEVELS, "unevaluatedItems"),
    "many ways that unevaluatedProperties follows": {**MARKED, "$defs": doubling("allOf")},
    "many fractions": {"allOf": [{"multipleOf": 1e-300}] * 600},
    "the same deep in a document": nested(MARKED, 6) | {"$defs": doubling("allOf")},
}

HARMLESS = {
    "dependencies": {"dependencies": {"k": {"required": ["l"]}, "l": ["k"]}},
    "a part with $id, and no reference": {"properties": {"a": {"$id": "urn:x", "type": "integer"}}},
    "a part with $id beside references": {
        "$defs": {"n": {"type": "string"}},
        "properties": {"b": {"$id": "/properties/b", "items": {}}, "a": {"$ref": "#/$defs/n"}},
    },
    "a part with $id that a reference leads to": {
        "$defs": {"n": {"$id": "n", "properties": {"c": {"type": "string"}}}},
        "properties": {"a": {"$ref": "#/$defs/n"}},
    },
    "a part with $schema, and no reference": {"properties": {"a": {"$schema": DRAFT_7, "type": "integer"}}},
    "a part of the same dialect": {
        "properties": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer"}},
    },
    "$id of the whole": {
        "$id": "https://example.com/x",
        "properties": {"a": {"$ref": "#n"}},
        "$defs": {"n": {"$anchor": "n"}},
    },
    "what nothing leads to": {
        "$defs": {"a": {"$ref": "#/x"}, "b": {"$id": "urn:x"}},
        "properties": {"c": {"$ref": "#"}},
    },
    "unevaluatedProperties over an intersection": {
        "allOf": [{"$ref": "#/$defs/n"}, {"properties": {"b": {}}}],
        "unevaluatedProperties": False,
        "$defs": {"n": {"properties": {"a": {}}}},
    },
    "three of them, nested": unevaluated(3),
    "some fractions": {"properties": {f"p{number}": {"multipleOf": 0.01} for number in range(400)}},
    "a tree": {
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"properties": {"n": {"items": {"$ref": "#/$defs/node"}}}, "unevaluatedProperties": False}},
    },
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_a_schema_that_the_engine_is_never_done_with_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as refused:
        check_schema(json.dumps({"type": "object", **schema}), arguments=True)
    assert refused.value.hint


@pytest.mark.parametrize("schema", HARMLESS.values(), ids=HARMLESS)
def test_a_schema_with_the_same_keywords_that_costs_little_is_taken(schema: dict[str, Any]) -> None:
    check_schema(json.dumps({"type": "object", **schema}), arguments=True)


def test_a_reference_that_cannot_be_told_is_named() -> None:
    with pytest.raises(SchemaCostError, match=r'refers out of itself: "urn:x#n"'):
        visits({"properties": {"a": {"$ref": "urn:x#n"}}})
    with pytest.raises(SchemaCostError, match=r"has \$id in a part of it \(/properties/a\)"):
        visits({"properties": {"a": {"$id": "urn:x", "$ref": "#"}}})


@pytest.mark.parametrize(
    ("part", "reference"),
    [
        ({"$ref": "#/$defs/n"}, "#/$defs/n"),
        ({"properties": {"c": {"$anchor": "c"}}}, "#/$defs/n"),
        ({"properties": {"c": {"type": "string"}}}, "#/properties/a/properties/c"),
        ({"properties": {"c": True}}, "#/properties/a/properties/c"),
        ({"$defs": {"n": {"type": "string"}}}, "#/$defs/n"),
        ({"$defs": {"n": True}}, "#/$defs/n"),
        ({"properties": {"c": {"$id": "urn:y"}}}, "#/$defs/n"),
        ({"$schema": DRAFT_7}, "#/$defs/n"),
        ({}, "#"),
    ],
)
def test_a_part_that_may_change_what_a_reference_leads_to_is_refused(part: dict[str, Any], reference: str) -> None:
    properties = {"a": {"$id": "urn:x", **part}, "b": {"$ref": reference}}
    with pytest.raises(SchemaCostError, match=r"has \$id in a part of it \(/properties/a\)"):
        visits({"properties": properties, "$defs": {"n": {}}})


@pytest.mark.parametrize("uri", ["https://a.example/x", "", "#", "x", "X#", "b/../%78", "./", "?"])
def test_a_part_that_may_be_called_as_the_whole_is_refused_wherever_it_stands(uri: str) -> None:
    schema = {"$id": "https://a.example/x", "properties": {"a": {"$ref": "#"}}, "$defs": {"n": {"$id": uri}}}
    with pytest.raises(SchemaCostError, match=r"has \$id in a part of it \(/\$defs/n\)"):
        visits(schema)
    visits({**schema, "$defs": {"n": {"$id": "y"}}})
    visits({"properties": {"id": {}, "a": {"$ref": "#"}}, "id": "x"})


def test_a_part_that_changes_no_reference_is_looked_at_where_one_leads_to_it() -> None:
    schema = {"$defs": {"n": {"$id": "n", "type": "string"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    assert visits(schema) == visits({**schema, "$defs": {"n": {"type": "string"}}})
    assert compile_schema(schema).is_valid({"a": "x"})
    assert not compile_schema(schema).is_valid({"a": 1})


def test_fractions_are_counted_however_short_a_schema_is() -> None:
    schema = json.dumps({"type": "object", "anyOf": [{"multipleOf": 0.1}] * 505}, separators=(",", ":"))
    with pytest.raises(SchemaError, match="fractions as multipleOf"):
        check_schema(schema, arguments=True)


def test_dependencies_look_at_the_same_value() -> None:
    assert visits({"dependencies": {"k": {}, "l": {}, "m": ["k"]}})[0] == visits({"allOf": [{}, {}, {}]})[0]


def test_marking_what_was_evaluated_counts_as_often_as_it_asks() -> None:
    assert visits(unevaluated(3))[0] > 2 * visits(unevaluated(2))[0]
    assert visits({"unevaluatedProperties": False, "allOf": [{}] * 10})[0] <= 40


def test_depths_beyond_the_steps_count_as_too_much() -> None:
    chain = {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(50)} | {"d50": {}}
    schema = {"$ref": "#/$defs/d0", "$defs": chain}
    assert max(visits(schema)) == 2
    short = visits(schema, steps=0)
    assert (max(short[:-1]), short[-1]) == (2, CEILING)


@pytest.mark.parametrize("keyword", ["$recursiveRef", "extends", "disallow", "additionalItems", "contentSchema"])
def test_a_keyword_that_counts_for_nothing_is_not_honoured(keyword: str) -> None:
    """`additionalItems` alone does nothing: an array as `items` is no schema of 2020-12."""
    taken = 0
    for value in (False, [False], {"k": False}, {"not": {}}, "#/$defs/n"):
        with contextlib.suppress(jsonschema_rs.ValidationError):
            validator = compile_schema({"$defs": {"n": False}, keyword: value})
            taken += 1
            assert all(validator.is_valid(each) for each in EVERY_DOCUMENT)
    assert taken
