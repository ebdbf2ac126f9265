"""Arguments typed by a schema, and schemas in words: whatever the schema, nothing but a typed error comes out."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from fumehood_server.cli.arguments import gather_arguments
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.output import json_or_text, to_json, visible
from fumehood_server.cli.schema import example_call, fields, value_words
from hypothesis import given
from hypothesis import strategies as st


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("123456789012345678901234567890", {"type": "integer"}, 123456789012345678901234567890),
        ("5", {"type": "string"}, "5"),
        ("true", {"type": "string"}, "true"),
        ("no", {"type": "boolean"}, False),
        ("1.5", {"type": "number"}, 1.5),
        ("5", {"type": "number"}, 5),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("null", {"type": ["string", "null"]}, "null"),
        ("8", {"enum": [4, 6, 8]}, 8),
        ("a", {"type": "array", "items": {"type": "string"}}, ["a"]),
        ('["a", "b"]', {"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("[1]", {"type": "string"}, "[1]"),
        ("x", {}, "x"),
        ("[1]", {}, [1]),
    ],
)
def test_a_pair_becomes_what_the_schema_takes(text: str, wanted: dict[str, Any], value: Any) -> None:
    found = gather_arguments([f"key={text}"], None, schema(key=wanted))
    assert found == {"key": value}
    assert type(found["key"]) is type(value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("five", {"type": "integer"}),
        ("1.5", {"type": "integer"}),
        ("true", {"type": "integer"}),
        ("NaN", {"type": "number"}),
        ("maybe", {"type": "boolean"}),
        ("x", {"type": "object"}),
        ("[1", {"type": "array"}),
        ("x", {"enum": [4, 6]}),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_its_pointer(text: str, wanted: dict[str, Any]) -> None:
    with pytest.raises(CommandError) as caught:
        gather_arguments([f"key={text}"], None, schema(key=wanted))
    assert caught.value.what.startswith("key")


def test_references_are_followed_and_a_loop_of_them_ends() -> None:
    root = {**schema(key={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "integer"}}}
    assert gather_arguments(["key=1"], None, root) == {"key": 1}
    loop = {**schema(key={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert gather_arguments(["key=1"], None, loop) == {"key": 1}


def test_repeated_pairs_make_a_list_only_where_the_tool_takes_one() -> None:
    many = schema(key={"type": "array", "items": {"type": "integer"}})
    assert gather_arguments(["key=1", "key=2"], None, many) == {"key": [1, 2]}
    with pytest.raises(CommandError, match="given 2 times"):
        gather_arguments(["key=1", "key=2"], None, schema(key={"type": "integer"}))


def test_json_can_always_be_given_and_pairs_win_over_the_whole() -> None:
    assert gather_arguments(["key:=null"], '{"key": 1, "other": 2}', schema()) == {"key": None, "other": 2}


@pytest.mark.parametrize("pair", ["key", "=x", ":=1", ""])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(CommandError, match="not an argument"):
        gather_arguments([pair], None, schema())


@pytest.mark.parametrize("whole", ["", "[]", "1", "{", "@/nonexistent/file", "null"])
def test_a_whole_that_is_no_object_is_refused(whole: str) -> None:
    with pytest.raises(CommandError):
        gather_arguments([], whole, schema())


@given(st.text())
def test_any_text_reaches_a_tool_that_takes_text_unchanged(text: str) -> None:
    assert gather_arguments([f"key={text}"], None, schema(key={"type": "string"})) == {"key": text}


@given(st.integers())
def test_any_integer_keeps_every_digit(number: int) -> None:
    assert gather_arguments([f"key={number}"], None, schema(key={"type": "integer"})) == {"key": number}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("#/properties/key"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["$ref", "type", "anyOf", "oneOf", "allOf", "enum", "const", "items", "properties", "default"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.text(max_size=10))
def test_no_schema_brings_a_command_down(hostile: Any, text: str) -> None:
    root = schema(key=hostile)
    for each in fields(root):
        json.dumps([each.type_text, each.default, each.description, value_words(each.schema, root)])
    assert example_call("tool", {**root, "required": ["key"]}).startswith("fumehood call tool key=")
    with contextlib.suppress(CommandError):
        gather_arguments([f"key={text}"], None, root)


@given(st.text())
def test_visible_text_holds_no_orders_for_a_terminal(text: str) -> None:
    shown = visible(text)
    assert len(shown) == len(text)
    assert all(character.isprintable() or ord(character) > 0x9F or character in "\n\t" for character in shown)


def test_a_number_beyond_floats_is_printed_as_json() -> None:
    assert json.loads(to_json(json_or_text('{"a": 1e400, "b": 1.5}'))) == {"a": "1e400", "b": 1.5}
