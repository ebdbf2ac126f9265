"""What the event loop does itself: by the work that it is, not by its size. No clock: what is over goes elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.model.coercion import Coercion
from fumehood_server.model.pattern_cost import building_states, pattern_states
from fumehood_server.model.schema_cost import CostlyPatternsError, schema_cost
from fumehood_server.validation.budget import INLINE, OverBudgetError
from fumehood_server.validation.documents import Accepted, Document, Kind, Rejected, check
from fumehood_server.validation.schemas import Validators

INTEGERS = {"properties": {"a": {"items": {"type": "integer"}}}}
UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

TWO_DEFAULTS = {"properties": {"a": {"items": {"allOf": [{"properties": {n: {"default": 1}}} for n in "xy"]}}}}


def is_inline(schema: dict[str, Any], value: object) -> bool:
    document = Document(Kind.ARGUMENTS, "digest", json.dumps({"type": "object"} | schema), json.dumps(value))
    try:
        check(document, Validators(INLINE), INLINE)
    except OverBudgetError:
        return False
    return True


def some(count: int) -> dict[str, Any]:
    """A definition that is referred to so many times."""
    return {"properties": {"a": {"items": {"allOf": [{"$ref": "#/$defs/n"}] * count}}}, "$defs": {"n": {}}}


@pytest.mark.parametrize(
    ("schema", "little", "much"),
    [
        ({}, {"a": "x" * 60_000}, {"a": "x" * 70_000}),
        ({}, {"a": [[]] * 900}, {"a": [[]] * 1100}),
        ({}, {"a": [1] * 1900}, {"a": [1] * 2100}),
        (some(200), {"a": [1] * 100}, {"a": [1] * 1000}),
        (INTEGERS, {"a": [1] * 1000}, {"a": ["x"] * 1000}),
        (INTEGERS, {"a": ["1"] * 5}, {"a": ["1"] * 16}),
        (INTEGERS, {"a": "x" * 50_000}, {"a": ["x" * 50_000] * 1, **{str(n): 0 for n in range(300)}}),
        (TWO_DEFAULTS, {"a": [{}] * 100}, {"a": [{}] * 900}),
        ({"properties": {"a": {"pattern": "[ab]*a[ab]{1000}c"}}}, {"a": "b" * 100}, {"a": "b" * 4000}),
        ({"properties": {"a": {"pattern": UUID}}}, {"a": "0" * 2000}, {"a": "0" * 20_000}),
    ],
)
def test_little_work_is_done_at_once_and_much_elsewhere(schema: dict[str, Any], little: object, much: object) -> None:
    assert is_inline(schema, little)
    assert not is_inline(schema, much)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": r"((a{30}){30}){30}"}}},
        {"properties": {"a": {"pattern": r"\pL{50}"}}},
        {"properties": {str(n): {"pattern": f"[ab]{{{1000 + n}}}"} for n in range(20)}},
        {"properties": {str(n): {"pattern": f"[ab]{n}"} for n in range(100)}},
        {"properties": {"a": {"pattern": "(?i)[a-z]{4900}"}}},
        {"properties": {"a": {"pattern": "[ab]{ 9000 }"}}},
        {"properties": {str(n): {"description": "x" * 1000} for n in range(20)}},
    ],
)
def test_a_schema_that_takes_long_to_compile_is_compiled_elsewhere(schema: dict[str, Any]) -> None:
    assert not is_inline(schema, {})
    assert is_inline({"properties": {str(n): {"pattern": UUID} for n in range(100)}}, {})


def test_both_budgets_find_the_same() -> None:
    text = '{"a":["1",2.0]}'
    document = Document(Kind.ARGUMENTS, "digest", json.dumps({"type": "object"} | INTEGERS), text)
    mended = Coercion("/a/0", "number", '"1" was taken as 1')
    assert check(document, Validators(INLINE), INLINE) == Accepted('{"a":[1,2]}', coercions=(mended,))
    wrong = Document(Kind.ARGUMENTS, "digest", document.schema_json, '{"a":["x"]}')
    assert isinstance(check(wrong, Validators(INLINE), INLINE), Rejected)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("", 1, 1),
        ("abc", 3, 3),
        ("a{3}", 3, 3),
        ("a{3,}b", 4, 4),
        ("(ab){10}", 20, 40),
        ("(?:ab|cd){2,10}", 40, 60),
        ("(?<name>ab){10}", 20, 40),
        ("((a{30}){30}){30}", 27_000, 30_000),
        ("[ab]*a[ab]{1000}c", 1002, 1010),
        (r"[\]a]{10}", 10, 10),
        ("[]a]{10}", 10, 10),
        ("[^]a]{10}", 80, 90),
        (r"\{1000}", 6, 6),
        (r"\p{Lu}{10}", 1_600, 1_600),
        (r"\p{Greek}{10}", 5000, 5000),
        (r"(?i)\p{Lu}{10}", 5000, 5010),
        (r"\pL{50}", 12_000, 12_000),
        (UUID, 32, 50),
        (r"\pL{50}" * 2, 24_000, 24_000),
        ("(?i)[a-z]{100}", 400, 1200),
        ("(?i)ks", 8, 12),
        (r"(?i:\w{100})", 400, 410),
        ("[é-íó-öÿ]{10}", 50, 200),
        ("[" + "".join(chr(0x1000 + 5 * n) for n in range(100)) + "]{10}", 1000, 1100),
        ("a{ 1000 }", 1000, 1000),
        ("a{2 , 1000}", 1000, 1000),
        ("a{0000000001000}", 1000, 1000),
        ("a{9999999999}", 1 << 29, 1 << 31),
        ("(a{100})+{100}", 10_000, 10_500),
        (r"\x{2028}", 8, 8),
        ("(?x) a {1000}", 1 << 20, 1 << 40),
        ("(" * 1000, 0, 2000),
        (")a{9}" * 1000, 9000, 30_000),
        ("[", 1, 9),
        ("a{999999999}{999999999}", 1 << 29, 1 << 31),
    ],
)
def test_the_states_of_a_pattern_are_estimated(pattern: str, least: int, most: int) -> None:
    assert least <= pattern_states(pattern) <= most


def test_patterns_count_where_they_meet() -> None:
    ten, five = {"pattern": "a{10}"}, {"pattern": "a{5}"}
    assert schema_cost({"properties": {"a": ten, "b": five}}).visiting_states == 10
    assert schema_cost({"properties": {"a": {"allOf": [ten, five]}}}).visiting_states == 15
    assert schema_cost({"patternProperties": {"a{10}": {}, "b{5}": {}}}).visiting_states == 15
    assert schema_cost({}).visiting_states == 0


def test_each_different_pattern_is_built_once() -> None:
    ten, five = {"pattern": "a{10}"}, {"pattern": "a{5}"}
    both = building_states("a{10}") + building_states("a{5}")
    schema_cost({"properties": {"a": ten, "b": five, "c": ten}, "x": five}, most_states=both)
    with pytest.raises(CostlyPatternsError):
        schema_cost({"properties": {"a": ten}, "x": five}, most_states=both - 1)
