"""Patterns of a server's schemas that can't be matched are left to it, and only where nothing is refused by that."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from fumehood_server.model.pattern_cost import building_states
from fumehood_server.model.schema import MAX_PATTERN_STATES, SchemaError, check_schema
from fumehood_server.plugins import mcp_patterns
from fumehood_server.plugins.definitions import RawDefinition, check_definition
from fumehood_server.plugins.mcp_patterns import UNCHECKED, unchecked_patterns, with_unchecked_patterns

AHEAD = "^(?!a)"
TWICE = r"^(a+)\1$"
MANY_STATES = r"^[\p{L}\p{N} ]{1,100}$"
NUMBER = "^[0-9]+$"


def relaxed(schema: dict[str, Any]) -> dict[str, Any]:
    raw = RawDefinition(name="tool", input_schema_json=json.dumps(schema))
    made: dict[str, Any] = json.loads(with_unchecked_patterns(raw).input_schema_json)
    return made


def of_property(rule: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": rule}}


@pytest.mark.parametrize("pattern", [AHEAD, TWICE, MANY_STATES, "^P(?:(\\d+W)|(?!.*W)(?=\\d)(\\d+Y)?)$"])
def test_a_pattern_that_can_not_be_matched_stays_as_a_note(pattern: str) -> None:
    rule = {"type": "string", "minLength": 1, "pattern": pattern}
    with pytest.raises(SchemaError):
        check_schema(json.dumps(of_property(rule)), arguments=True)
    made = relaxed(of_property(rule))
    assert made == of_property({"type": "string", "minLength": 1, UNCHECKED: pattern})
    check_schema(json.dumps(made), arguments=True)


def test_patterns_that_can_be_matched_stay() -> None:
    schema = of_property({"allOf": [{"pattern": AHEAD}, {"pattern": NUMBER}]})
    assert relaxed(schema) == of_property({"allOf": [{UNCHECKED: AHEAD}, {"pattern": NUMBER}]})
    assert relaxed(of_property({"pattern": NUMBER})) == of_property({"pattern": NUMBER})


def test_of_many_patterns_those_that_take_most_are_left_out() -> None:
    rules = {f"p{length}": {"pattern": f"^[a-z]{{{length}}}x$"} for length in range(1000, 9000, 1000)}
    made = relaxed({"type": "object", "properties": rules})["properties"]
    left = [name for name, each in made.items() if UNCHECKED in each]
    assert left == ["p6000", "p7000", "p8000"], "the others have 15,000 states and more, of 20,000"
    assert MAX_PATTERN_STATES == 20_000
    check_schema(json.dumps({"type": "object", "properties": made}), arguments=True)


@pytest.mark.parametrize(
    "rule",
    [
        {"not": {"pattern": AHEAD}},
        {"if": {"pattern": AHEAD}, "then": {"minLength": 2}},
        {"oneOf": [{"pattern": AHEAD}, {"pattern": "^b"}]},
        {"type": "array", "contains": {"pattern": AHEAD}, "maxContains": 1},
        {"type": "object", "patternProperties": {AHEAD: {}}, "additionalProperties": False},
    ],
)
def test_where_less_would_pass_nothing_is_left_out(rule: dict[str, Any]) -> None:
    assert relaxed(of_property(rule)) == of_property(rule)


def test_what_is_referred_to_from_such_a_place_stays() -> None:
    schema = of_property({"$ref": "#/$defs/a"}) | {"$defs": {"a": {"pattern": AHEAD}}}
    assert relaxed(schema)["$defs"] == {"a": {UNCHECKED: AHEAD}}
    strict = schema | {"not": {"required": ["y"], "properties": {"y": {"$ref": "#/$defs/a"}}}}
    assert relaxed(strict) == strict


@pytest.mark.parametrize("holder", ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"])
def test_what_has_the_name_of_a_keyword_that_may_be_stricter_is_none(holder: str) -> None:
    names = ("contains", "not", "if", "oneOf", "dependencies", "$ref", "properties")
    below, strict = {"$ref": "#/$defs/e"}, {"not": {"$ref": "#/$defs/e"}}
    schemas = {
        name: [of_property({holder: {name: each}}) | {"$defs": {"e": {"pattern": AHEAD}}} for each in (below, strict)]
        for name in names
    }
    left = [name for name, (schema, _) in schemas.items() if relaxed(schema)["$defs"] != {"e": {UNCHECKED: AHEAD}}]
    assert not left
    assert all(relaxed(schema) == schema for _, schema in schemas.values()), "what each holds is a schema again"


def test_patterns_that_can_not_be_matched_are_tried_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    whole = mcp_patterns.compile_schema

    def counted(schema: dict[str, Any]) -> object:
        tried.append(schema["pattern"])
        return whole(schema)

    monkeypatch.setattr(mcp_patterns, "compile_schema", counted)
    rules = {f"p{number}": {"pattern": f"^(?!{number})"} for number in range(1000)}
    made = relaxed({"type": "object", "properties": rules})["properties"]
    assert all(UNCHECKED in each for each in made.values())
    assert 0 < sum(map(building_states, tried)) <= MAX_PATTERN_STATES


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema = {"type": "object", "properties": {"pattern": {"pattern": AHEAD}, "items": {"type": "string"}}}
    assert relaxed(schema)["properties"] == {"pattern": {UNCHECKED: AHEAD}, "items": {"type": "string"}}


def test_where_they_are_is_told_by_pointer() -> None:
    schema = of_property({"items": {"properties": {"a/b~": {"pattern": AHEAD}}}})
    raw = RawDefinition(
        name="tool", description="A tool.", input_schema_json=json.dumps(schema), side_effects="read",
        output_schema_json=json.dumps(of_property({"anyOf": [{}, {"pattern": TWICE}]})),
    )  # fmt: skip
    definition, problems = check_definition(with_unchecked_patterns(raw))
    assert definition is not None, problems
    assert unchecked_patterns(definition) == ["/properties/x/items/properties/a~1b~0", "/properties/x/anyOf/1"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1, "a": 2}', '{"pattern": "\\udfff"}', '{"pattern": 5}'])
def test_what_is_no_schema_is_left_to_its_check(text: str) -> None:
    assert with_unchecked_patterns(RawDefinition(name="tool", input_schema_json=text)).input_schema_json == text


def test_nothing_is_refused_that_the_whole_schema_takes() -> None:
    chosen = random.Random(7)  # noqa: S311 - no secret
    compared = 0
    for _ in range(600):
        parts = {"a": _rule(chosen, 2, "b"), "b": _rule(chosen, 1, "")}
        schema = {"$defs": parts, **_rule(chosen, 3, "ab")}
        made = relaxed(schema)
        if made == schema:
            continue
        whole, rest = (jsonschema.Draft202012Validator(each) for each in (schema, made))
        for _ in range(20):
            value = _value(chosen, 3)
            compared += 1
            assert rest.is_valid(value) or not whole.is_valid(value), (schema, value)
    assert compared > 1000


def _rule(chosen: random.Random, depth: int, parts: str) -> dict[str, Any]:
    """A random one, which may refer to these parts."""
    if depth == 0 or chosen.random() < 0.2:
        references = [{"$ref": f"#/$defs/{part}"} for part in parts]
        rules = [{"pattern": AHEAD}, {"pattern": NUMBER}, {"type": "string"}, {"minLength": 2}, {}]
        return chosen.choice([*rules, {"pattern": AHEAD}, *references])
    some = [_rule(chosen, depth - 1, parts) for _ in range(2)]
    keyword = chosen.choice(
        ["allOf", "anyOf", "prefixItems", "properties", "patternProperties", "dependentSchemas"] * 2
        + ["items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames"] * 2
        + ["not", "if", "oneOf", "contains"]
    )
    if keyword in {"allOf", "anyOf", "prefixItems", "oneOf"}:
        rule: dict[str, Any] = {keyword: some}
    elif keyword in {"properties", "patternProperties", "dependentSchemas"}:
        rule = {keyword: dict(zip(("a", "b"), some, strict=True))}
    else:
        rule = {keyword: some[0], "then": some[1], "maxContains": 1}
    return rule if chosen.random() < 0.5 else rule | _rule(chosen, 0, parts)


def _value(chosen: random.Random, depth: int) -> Any:
    kind = chosen.random()
    if depth == 0 or kind < 0.4:
        return chosen.choice(["a", "b", "ab", "12", "1", 5])
    if kind < 0.7:
        return [_value(chosen, depth - 1) for _ in range(chosen.randrange(4))]
    return {name: _value(chosen, depth - 1) for name in chosen.sample(["a", "b", "c", "ab"], chosen.randrange(4))}
