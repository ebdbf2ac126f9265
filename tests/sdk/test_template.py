"""The argument template of `cli` tools: a caller's value never becomes an option."""

from __future__ import annotations

from typing import Any

import pytest
from fumehood_sdk.adapters.template import ArgumentError, Template, TemplateError
from hypothesis import given
from hypothesis import strategies as st

SEARCH = ["--line-number", {"if": "loose", "args": ["--ignore-case"]}, "--regexp={pattern}", "--", "{paths}"]


@pytest.mark.parametrize(
    ("argv", "arguments", "expected"),
    [
        (SEARCH, {"pattern": "-x", "paths": ["-a", "b"]}, ["--line-number", "--regexp=-x", "--", "-a", "b"]),
        (SEARCH, {"pattern": "", "paths": [], "loose": True}, ["--line-number", "--ignore-case", "--regexp=", "--"]),
        (SEARCH, {"pattern": "x", "paths": ["b"], "loose": False}, ["--line-number", "--regexp=x", "--", "b"]),
        (["-n{count}"], {"count": "-3"}, ["-n-3"]),
        (["{a}:{b}"], {"a": "x", "b": "-y"}, ["x:-y"]),
        (["--tag={tags}"], {"tags": ["a", "b"]}, ["--tag=a", "--tag=b"]),
        (["{a}"], {"a": True}, ["true"]),
        (["{{a}}"], {}, ["{a}"]),
        ([{"if": "a", "args": ["--", "{a}"]}, "{b}"], {"a": "-1", "b": "-2"}, ["--", "-1", "-2"]),
        (["$(id)", "{a}"], {"a": "; rm -rf /"}, ["$(id)", "; rm -rf /"]),
    ],
)
def test_a_template_gives_the_programs_arguments(
    argv: list[Any], arguments: dict[str, Any], expected: list[str]
) -> None:
    assert Template(argv).render(arguments) == expected


@pytest.mark.parametrize(
    ("argv", "arguments", "rule"),
    [
        (["{a}"], {"a": "--exec=x"}, "option"),
        (["{a}"], {"a": "-"}, "option"),
        (["{a}"], {"a": ["x", "-y"]}, "option"),
        (["{a}{b}"], {"a": "", "b": "-y"}, "option"),
        (["{a}-x"], {"a": ""}, "option"),
        ([{"if": "b", "args": ["--"]}, "{a}"], {"a": "-x", "b": False}, "option"),
        (["{b}", "{a}"], {"b": "--", "a": "-x"}, "option"),
        (["--x={a}"], {"a": "nul\0"}, "pattern"),
        (["--x={a}"], {"a": {"b": 1}}, "type"),
        (["--x={a}"], {"a": [["b"]]}, "type"),
        (["{a}{b}"], {"a": ["x"], "b": ["y"]}, "type"),
        (["--x={a}"], {}, "required"),
        (["--x={a}"], {"a": None}, "required"),
    ],
)
def test_what_cannot_stand_in_a_command_is_refused(argv: list[Any], arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Template(argv).render(arguments)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        (["ok", 3], "argv.1"),
        (["{"], "argv.0"),
        (["a}b"], "argv.0"),
        (["{a b}"], "argv.0"),
        ([{"if": "a"}], "argv.0"),
        ([{"if": "a", "args": "b"}], "argv.0"),
        ([{"if": 1, "args": []}], "argv.0"),
        ([{"if": "a", "args": [{"if": "b", "args": []}]}], "argv.0"),
        ([{"if": "a", "args": [], "else": []}], "argv.0"),
        (["nul\0"], "argv.0"),
    ],
)
def test_a_malformed_template_is_refused_with_its_place(argv: list[Any], place: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(argv)
    assert caught.value.place == place


def test_a_template_is_held_against_the_schema() -> None:
    template = Template(["{a}", "{b}", "{c}", {"if": "d", "args": ["{d}", "{e}"]}, {"if": "z", "args": []}])
    properties = {"a": {}, "b": {"default": 1}, "c": {}, "d": {}, "e": {}}
    assert [(place, name) for place, name, _ in template.problems(properties, ["a"])] == [
        ("argv.2", "c"),
        ("argv.3", "e"),
    ]
    template = Template([{"if": "z", "args": ["-x"]}, "{y}"])
    assert [(place, name) for place, name, _ in template.problems(properties, [])] == [("argv.0", "z"), ("argv.1", "y")]


@pytest.mark.parametrize(
    ("schema", "may_stand"),
    [
        ({"type": "object"}, False),
        ({"type": ["object", "null"]}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"type": "array", "items": {"type": "array"}}, False),
        ({"type": ["object", "string"]}, True),
        ({"type": "array", "items": {"type": "integer"}}, True),
        ({"type": "array"}, True),
        ({"$ref": "#/$defs/any"}, True),
        ({"type": [{}]}, True),  # no schema, which is told elsewhere
        (True, True),
    ],
)
def test_a_property_whose_values_no_command_can_hold_is_told(schema: Any, may_stand: bool) -> None:
    template = Template(["{a}", {"if": "b", "args": ["-b"]}])
    found = template.problems({"a": schema, "b": {"type": "object"}}, ["a"])
    assert [(place, name) for place, name, _ in found] == ([] if may_stand else [("argv.0", "a")])


@given(st.text(), st.lists(st.text()), st.booleans())
def test_no_value_becomes_an_option(pattern: str, paths: list[str], loose: bool) -> None:
    template = Template(["find", {"if": "loose", "args": ["-i"]}, "{pattern}", "{paths}", "--", "{paths}"])
    try:
        argv = template.render({"pattern": pattern, "paths": paths, "loose": loose})
    except ArgumentError:
        assert any(value.startswith("-") or "\0" in value for value in (pattern, *paths))
        return
    head = argv[: len(argv) - len(paths) - 1]
    assert [word for word in head if word.startswith("-")] == ["-i"] * loose
    assert argv[len(head) :] == ["--", *paths]
