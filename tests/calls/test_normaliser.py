"""What a plugin gets of valid arguments: integers without a fraction, and the defaults of the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.schemas import Validators
from hypothesis import given
from hypothesis import strategies as st

from tests.calls.documents import prepare_arguments
from tests.calls.fake import tool

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
DEFINITIONS = {
    "whole": {"$anchor": "whole", "type": "integer"},
    "node": {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#/$defs/node"}}},
}


def handed_on(properties: dict[str, Any], text: str, **more: Any) -> str:
    """The text that a plugin gets."""
    schema = json.dumps({"type": "object", "properties": properties, "$defs": DEFINITIONS, **more})
    made = prepare_arguments(tool(schema=schema), text, Validators())
    assert isinstance(made, str), made
    return made


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("5.0", "5"),
        ("1e3", "1000"),
        ("-7.00", "-7"),
        ("25E1", "250"),
        ("-0.0", "0"),
        ("9007199254740991.0", "9007199254740991"),
    ],
)
def test_an_integer_comes_without_fraction_and_exponent(written: str, whole: str) -> None:
    assert handed_on({"n": INTEGER}, f'{{"n": {written}}}') == f'{{"n":{whole}}}'


def test_an_integer_beyond_what_a_double_tells_apart_stays_as_it_was_written() -> None:
    text = '{"n":1e20,"m":9007199254740993.0,"l":90071992547409931234}'
    assert handed_on({"n": INTEGER, "m": INTEGER, "l": INTEGER}, text) == text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "integer"]},
        {"anyOf": [{"type": "null"}, INTEGER]},
        {"oneOf": [{"type": "string"}, INTEGER]},
        {"allOf": [{"minimum": 0}, INTEGER]},
        {"$ref": "#/$defs/whole"},
        {"$ref": "#whole"},
        {"if": {"minimum": 3}, "then": INTEGER},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_an_integer_is_known_under_references_and_branches(schema: dict[str, Any]) -> None:
    assert handed_on({"n": schema, "ratio": NUMBER}, '{"n":5.0,"ratio":5.0}') == '{"n":5,"ratio":5.0}'


def test_an_integer_is_known_at_any_depth() -> None:
    rows = {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER}}}
    pair = {"type": "array", "prefixItems": [NUMBER, INTEGER], "items": INTEGER}
    properties = {"rows": rows, "pair": pair, "tree": {"$ref": "#/$defs/node"}}
    text = '{"rows":[{"n":1.0},{"n":2}],"pair":[3.0,4.0,5.0],"tree":{"next":{"next":{"n":6.0}}}}'
    assert json.loads(handed_on(properties, text)) == json.loads(text)
    assert handed_on(properties, text) == (
        '{"rows":[{"n":1},{"n":2}],"pair":[3.0,4,5],"tree":{"next":{"next":{"n":6}}}}'
    )


def test_an_integer_is_known_in_properties_without_a_name() -> None:
    assert handed_on({}, '{"a":1.0}', additionalProperties=INTEGER) == '{"a":1}'
    assert handed_on({}, '{"a":1.0,"b":1.0}', patternProperties={"^a": INTEGER}) == '{"a":1,"b":1}'
    assert handed_on({"b": NUMBER}, '{"a":1.0,"b":1.0}', additionalProperties=INTEGER) == '{"a":1,"b":1.0}'


def test_the_other_numbers_keep_every_digit() -> None:
    text = '{"n":1.0,"pi":3.14159265358979323846,"big":90071992547409931234567890,"t":1.10}'
    assert handed_on({"n": INTEGER}, text) == text.replace("1.0,", "1,", 1)


def test_defaults_are_filled_in() -> None:
    properties = {
        "path": {"type": "string"},
        "depth": {"type": "integer", "default": 3},
        "options": {"type": "object", "default": {"hidden": False}, "properties": {"case": {"default": "any"}}},
        "kind": {"$ref": "#/$defs/kind"},
    }
    kinds = {"$defs": {"kind": {"enum": ["file", "folder"], "default": "file"}}}
    filled = {"depth": 3, "options": {"hidden": False}, "kind": "file"}
    assert json.loads(handed_on(properties, '{"path":"a"}', **kinds)) == {"path": "a", **filled}
    assert json.loads(handed_on(properties, " { } ", **kinds)) == filled
    assert json.loads(handed_on(properties, "", **kinds)) == filled
    given_all = '{"path":"a","depth":null,"options":{"case":"x"},"kind":"folder"}'.replace("null", "1")
    assert handed_on(properties, given_all, **kinds) == given_all


def test_the_callers_text_stands_before_the_defaults() -> None:
    properties = {"a": NUMBER, "b": {"default": "ü"}}
    assert handed_on(properties, '{ "a": 1.10 }') == '{ "a": 1.10,"b":"ü"}'


def test_defaults_are_filled_in_within_objects_and_lists() -> None:
    row = {"type": "object", "properties": {"op": {"default": "eq"}}}
    properties = {"rows": {"type": "array", "items": row}, "one": row}
    made = handed_on(properties, '{"rows":[{},{"op":"gt"}],"one":{}}')
    assert json.loads(made) == {"rows": [{"op": "eq"}, {"op": "gt"}], "one": {"op": "eq"}}


SQUARE = {
    "type": "object",
    "properties": {"shape": {"const": "square"}, "side": {"default": 1}},
    "required": ["shape"],
}
CIRCLE = {
    "type": "object",
    "properties": {"shape": {"const": "circle"}, "radius": {"default": 2}},
    "required": ["shape"],
}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_defaults_of_a_branch_are_filled_in_where_no_other_can_be_meant(keyword: str) -> None:
    properties = {"x": {keyword: [SQUARE, CIRCLE, {"type": "null"}]}}
    assert json.loads(handed_on(properties, '{"x":{"shape":"circle"}}')) == {"x": {"shape": "circle", "radius": 2}}
    assert handed_on(properties, '{"x":null}') == '{"x":null}'


def test_defaults_of_branches_that_may_both_be_meant_are_left_out() -> None:
    left = {"type": "object", "properties": {"a": {"default": 1}}}
    right = {"type": "object", "properties": {"b": {"default": 2}}}
    assert handed_on({"x": {"anyOf": [left, right]}}, '{"x":{}}') == '{"x":{}}'


def test_a_default_under_a_pattern_or_a_condition_is_left_out() -> None:
    maybe = {"type": "object", "properties": {"a": {"default": 1}}}
    assert handed_on({}, '{"x":{}}', patternProperties={"^y": maybe}) == '{"x":{}}'
    assert handed_on({}, '{"x":{}}', **{"if": {"required": ["y"]}, "then": maybe}) == '{"x":{}}'
    named = {"x": {"type": "object"}}
    assert handed_on(named, '{"x":{}}', additionalProperties=maybe) == '{"x":{}}'


def test_a_default_that_does_not_fit_is_left_out() -> None:
    wrong_type = {"a": {"type": "integer", "default": None}, "b": {"default": 1}}
    assert handed_on(wrong_type, "{}") == '{"b":1}'
    out_of_bounds = {"a": {"type": "integer", "minimum": 0, "default": -1}, "n": INTEGER}
    assert handed_on(out_of_bounds, '{"n":5.0}') == '{"n":5}'


def test_a_schema_that_holds_itself_in_its_default_is_filled_in_once() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node", "default": {}}}}
    made = handed_on({"tree": {"$ref": "#/$defs/node"}}, '{"tree":{}}', **{"$defs": {"node": node}})
    assert made == '{"tree":{"next":{}}}'


def test_a_chain_of_a_thousand_references_is_followed() -> None:
    chain: dict[str, Any] = {f"r{n}": {"$ref": f"#/$defs/r{n + 1}"} for n in range(1000)} | {"r1000": INTEGER}
    assert handed_on({"n": {"$ref": "#/$defs/r0"}}, '{"n":5.0}', **{"$defs": chain}) == '{"n":5}'


def test_a_schema_with_an_id_of_its_own_is_normalised_where_nothing_refers() -> None:
    inner = {"$id": "urn:x", "type": "object", "properties": {"n": NUMBER, "m": INTEGER}}
    schema = json.dumps({"type": "object", "properties": {"x": inner}})
    made = prepare_arguments(tool(schema=schema), '{"x":{"n":5.0,"m":5.0}}', Validators())
    assert made == '{"x":{"n":5.0,"m":5}}'


def test_a_document_of_a_mebibyte_has_all_its_defaults_as_a_small_one() -> None:
    rows = {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER, "a": {"default": 1}}}}
    properties = {"rows": rows, "b": {"default": 2}}
    for count in (100, 100_000):
        text = '{"rows":[%s]}' % ",".join(['{"n":1.0}'] * count)  # noqa: UP031
        assert json.loads(handed_on(properties, text)) == {"rows": [{"n": 1, "a": 1}] * count, "b": 2}


def test_defaults_do_not_grow_a_document_without_bound() -> None:
    rows = {"type": "array", "items": {"type": "object", "properties": {"a": {"default": "x" * 10_000}}}}
    properties = {"rows": rows, "b": {"default": 2}}
    few, many = json.dumps({"rows": [{}] * 10}), json.dumps({"rows": [{}] * 1000})
    assert len(handed_on(properties, few)) > 100_000
    assert PROCESS.filled_bytes < 1000 * 10_000
    assert handed_on(properties, many) == many[:-1] + ',"b":2}'


def test_a_long_list_of_whole_numbers_leaves_room_for_what_follows_it() -> None:
    properties = {"ids": {"type": "array", "items": INTEGER}, "n": INTEGER}
    ids = ",".join(["1"] * 20_000)
    assert handed_on(properties, f'{{"ids":[{ids}],"n":5.0}}') == f'{{"ids":[{ids}],"n":5}}'


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from("abc"), _JSON, max_size=3))
def test_what_is_handed_on_is_the_same_json_with_more_names_at_most(value: dict[str, Any]) -> None:
    anything: dict[str, Any] = {"properties": {"a": {"default": 0, "$ref": "#"}}, "items": {"$ref": "#"}}
    schema = {"type": "object", "$ref": "#/$defs/any", "$defs": {"any": anything | {"anyOf": [INTEGER, True]}}}
    anything["properties"]["a"]["$ref"] = anything["items"]["$ref"] = "#/$defs/any"
    made = prepare_arguments(tool(schema=json.dumps(schema)), json.dumps(value), Validators())
    assert isinstance(made, str)
    assert _without(json.loads(made), value) == value


def _without(made: Any, value: Any) -> Any:
    """`made` less the names that only it has."""
    if isinstance(made, dict):
        return {name: _without(each, value[name]) for name, each in made.items() if name in value}
    if isinstance(made, list):
        return [_without(*pair) for pair in zip(made, value, strict=True)]
    return made
