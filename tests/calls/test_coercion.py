"""What models get wrong about types is mended where it can mean one thing only, and told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.validation.budget import INLINE, PROCESS, OverBudgetError
from fumehood_server.validation.documents import Accepted, Document, Kind, Rejected, check
from fumehood_server.validation.schemas import Validators
from hypothesis import given
from hypothesis import strategies as st

INTEGERS = {"type": "array", "items": {"type": "integer"}}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
MAYBE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
BOOLEAN = {"type": "boolean"}


def checked(schema: dict[str, Any], value: object, *, text: str | None = None) -> Accepted | Rejected:
    whole = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    return check(
        Document(Kind.ARGUMENTS, "digest", json.dumps(whole), text or json.dumps({"v": value})), Validators(), PROCESS
    )


@pytest.mark.parametrize(
    ("schema", "given", "taken", "rule", "message"),
    [
        ({"type": "integer"}, "3", 3, "number", '"3" was taken as 3'),
        ({"type": "number"}, "0.5", 0.5, "number", '"0.5" was taken as 0.5'),
        (BOOLEAN, "true", True, "boolean", '"true" was taken as true'),
        (BOOLEAN, 0, False, "boolean", "0 was taken as false"),
        (BOOLEAN, 1, True, "boolean", "1 was taken as true"),
        (MAYBE, "", None, "null", '"" was taken as null'),
        (INTEGERS, 7, [7], "array", "7 was taken as an array of it"),
        (INTEGERS, "7", [7], "array", '"7" was taken as an array of it'),
        ({"type": "array", "items": {"type": "string"}}, "7", ["7"], "array", '"7" was taken as an array of it'),
        (INTEGERS, "[1, 2]", [1, 2], "array", '"[1, 2]" was taken as an array'),
        (POINT, '{"x": 1}', {"x": 1}, "object", '"{\\"x\\": 1}" was taken as an object'),
        ({"type": "array", "items": POINT}, {"x": 1}, [{"x": 1}], "array", '{"x": 1} was taken as an array of it'),
        ({"anyOf": [POINT, {"type": "null"}]}, '{"x":1}', {"x": 1}, "object", '"{\\"x\\":1}" was taken as an object'),
    ],
)
def test_a_value_of_another_type_is_taken_as_what_it_means(
    schema: dict[str, Any], given: object, taken: object, rule: str, message: str
) -> None:
    found = checked(schema, given)
    assert isinstance(found, Accepted), found
    assert json.loads(found.text) == {"v": taken}
    assert type(json.loads(found.text)["v"]) is type(taken)
    assert [(each.pointer, each.rule, each.message) for each in found.coercions] == [("/v", rule, message)]


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "string"}, "3"),
        ({"type": ["string", "boolean"]}, "true"),
        ({"type": ["integer", "boolean"]}, 1),
        ({"type": ["string", "null"]}, ""),
        ({"anyOf": [INTEGERS, {"type": "integer"}]}, 7),
        ({"type": ["string", "object"]}, '{"x": 1}'),
        (MAYBE, None),
    ],
)
def test_a_value_that_fits_as_it_is_stays(schema: dict[str, Any], given: object) -> None:
    found = checked(schema, given)
    assert isinstance(found, Accepted), found
    assert json.loads(found.text) == {"v": given}
    assert found.coercions == ()


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "integer"}, None),
        (BOOLEAN, None),
        (INTEGERS, None),
        (POINT, None),
        ({"type": "integer"}, ""),
        (BOOLEAN, 2),
        (BOOLEAN, "1"),
        (INTEGERS, "x"),
        ({"type": "array", "items": {"type": "string"}}, "[1]"),
        (INTEGERS, [[1]]),
        ({"type": "array", "items": INTEGERS}, [1, "x"]),
        (POINT, '{"y": 1}'),
        (POINT, '{"x": 1, "x": 2}'),
        (POINT, '{"x": '),
        (POINT, "null"),
    ],
)
def test_a_value_that_means_nothing_the_schema_takes_is_refused(schema: dict[str, Any], given: object) -> None:
    found = checked(schema, given)
    assert isinstance(found, Rejected)
    assert found.faults


@pytest.mark.parametrize("inner", ["3", '{"x": "3"}'])
def test_a_mended_value_is_mended_within_as_well(inner: str) -> None:
    schema = {"type": "object", "properties": {"p": POINT, "n": INTEGERS}}
    found = checked(schema, {"n": ["1", 2], "p": {"x": "4"}} if inner == "3" else None, text=None)
    if inner == "3":
        assert isinstance(found, Accepted)
        assert json.loads(found.text)["v"] == {"n": [1, 2], "p": {"x": 4}}
        assert {each.pointer for each in found.coercions} == {"/v/n/0", "/v/p/x"}
    else:
        assert isinstance(found, Rejected)


@pytest.mark.parametrize("text", ['"{\\"v\\": 3}"', ' "{\\"v\\": \\"3\\"}"'])
def test_arguments_that_are_the_text_of_an_object_are_that_object(text: str) -> None:
    found = checked({"type": "integer"}, None, text=text)
    assert isinstance(found, Accepted)
    assert json.loads(found.text) == {"v": 3}
    assert found.coercions[0].pointer == ""


@pytest.mark.parametrize("text", ['"[1]"', '"x"', '"\\"{}\\""', '"{\\"v\\": 1, \\"v\\": 2}"', '"{"'])
def test_arguments_that_are_another_text_are_refused(text: str) -> None:
    assert isinstance(checked({"type": "integer"}, None, text=text), Rejected)


def test_text_that_would_make_the_arguments_large_is_not_read() -> None:
    wide = {"type": "array", "items": {"type": "integer"}}
    assert isinstance(checked(wide, json.dumps([1] * 100)), Accepted)
    assert isinstance(checked(wide, json.dumps([1] * 5_000)), Rejected), "more values than are mended"
    assert isinstance(checked({"type": "array"}, json.dumps(["x" * 20_000])), Rejected), "longer than is read"


def test_what_takes_long_to_mend_is_left_to_the_process() -> None:
    schema = {"type": "object", "properties": {str(n): {"type": "integer"} for n in range(200)}}
    document = Document(Kind.ARGUMENTS, "digest", json.dumps(schema), json.dumps({str(n): "1" for n in range(10)}))
    with pytest.raises(OverBudgetError):
        check(document, Validators(INLINE), INLINE)
    found = check(document, Validators(), PROCESS)
    assert isinstance(found, Accepted)
    assert len(found.coercions) == 10


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "0", "1", "true", "[1]", '{"x":1}', "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("vx"), inner, max_size=2),
    max_leaves=5,
)


@given(st.sampled_from([INTEGERS, POINT, MAYBE, BOOLEAN, {"type": "array", "items": POINT}]), _JSON)
def test_what_is_handed_on_always_fits_and_whatever_changed_is_told(schema: dict[str, Any], value: object) -> None:
    found = checked(schema, value)
    if isinstance(found, Accepted):
        again = checked(schema, None, text=found.text)
        assert isinstance(again, Accepted)
        assert again.coercions == ()
        assert (json.loads(found.text) == {"v": value}) or found.coercions
