from __future__ import annotations

import json

import pytest
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.validation.documents import MAX_FAULTS
from fumehood_server.validation.explanation import pointer
from fumehood_server.validation.schemas import Validators
from fumehood_server.validation.strict_json import MAX_DEPTH
from hypothesis import given
from hypothesis import strategies as st

from tests.calls.documents import prepare_arguments
from tests.calls.fake import tool

OPEN = '{"type":"object"}'


def prepared(text: str, schema: str | None = None) -> str | CallError:
    made = tool() if schema is None else tool(schema=schema)
    return prepare_arguments(made, text, Validators())


def faults(text: str, schema: str | None = None) -> list[dict[str, str]]:
    error = prepared(text, schema)
    assert isinstance(error, CallError), error
    assert error.code is Code.TOOL_EXECUTION_FAILED
    assert not error.retryable
    assert error.details["reason"] == "invalid_arguments"
    found: list[dict[str, str]] = error.details["arguments"]
    return found


def test_valid_arguments_are_handed_on_byte_for_byte() -> None:
    text = '{ "text": "hi", "count": 90071992547409931234 }'
    assert prepared(text) == text


def test_no_text_means_no_arguments() -> None:
    assert prepared("", OPEN) == "{}"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "not JSON"),
        ("nope", "not JSON"),
        ('{"text": NaN}', "not JSON"),
        ('{"text": 1e999}', "not JSON"),
        ('{"text": "\\ud800"}', "not JSON"),
        ("[1]", "not an array"),
        ('"text"', "not a string"),
        ("null", "not null"),
        ("true", "not a boolean"),
        ("3", "not a number"),
        ('{"text":"a","text":"b"}', '"text" twice'),
        ('{"text":"a","t\\u0065xt":"b"}', '"text" twice'),
        ('{"a":[{"b":1,"b":2}]}', '"b" twice'),
        ('{"a":{},"a":":{["}', '"a" twice'),
    ],
)
def test_what_is_not_one_strict_json_object_is_refused_in_words(text: str, word: str) -> None:
    (fault,) = faults(text, OPEN)
    assert fault["rule"] == "json"
    assert fault["pointer"] == ""
    assert word in fault["message"]


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_nesting_is_bounded_on_the_level(brackets: tuple[str, str]) -> None:
    def nested(depth: int) -> str:
        inner = depth - 1
        return '{"a":' + brackets[0] * inner + "1" + brackets[1] * inner + "}"

    assert isinstance(prepared(nested(MAX_DEPTH), OPEN), str)
    assert "nested" in faults(nested(MAX_DEPTH + 1), OPEN)[0]["message"]
    assert faults(nested(100_000), OPEN)


def test_brackets_within_strings_are_no_nesting() -> None:
    assert isinstance(prepared(json.dumps({"a": "[{" * 1000, "b:": [":"]}), OPEN), str)


def test_each_argument_at_fault_has_one_entry() -> None:
    found = faults('{"count":"many","ratio":"x","extra":1,"more":2}')
    assert {(each["pointer"], each["rule"]) for each in found} == {
        ("/text", "required"),
        ("/count", "type"),
        ("/ratio", "anyOf"),
        ("/extra", "additionalProperties"),
        ("/more", "additionalProperties"),
    }


def test_the_message_names_what_to_mend() -> None:
    error = prepared('{"count":1}')
    assert isinstance(error, CallError)
    assert "/text" in error.message
    assert "echo" in error.message


def test_faults_are_bounded_in_number_and_length() -> None:
    found = faults(json.dumps({"x" * 5000: 1, **{f"k{i}": 1 for i in range(1000)}}))
    assert len(found) == MAX_FAULTS
    assert all(len(each["message"]) <= 300 and len(each["pointer"]) <= 300 for each in found)


@pytest.mark.parametrize(
    ("given_value", "name", "coerced"),
    [
        ("3", "count", 3),
        ("-3", "count", -3),
        ("3.0", "count", 3),
        ("12345678901234567890123", "count", 12345678901234567890123),
        ("0.5", "ratio", 0.5),
        ("2", "ratio", 2),
        ("true", "loud", True),
        ("False", "loud", False),
    ],
)
def test_text_that_can_only_mean_one_thing_becomes_it(given_value: str, name: str, coerced: object) -> None:
    text = prepared(json.dumps({"text": "hi", name: given_value}))
    assert isinstance(text, str)
    assert json.loads(text) == {"text": "hi", name: coerced}
    assert type(json.loads(text)[name]) is type(coerced)


@pytest.mark.parametrize(
    ("value", "name"),
    [("3.5", "count"), ("three", "count"), ("", "count"), ("0x10", "count"), ("1_000", "count"), (True, "count"),
     ("yes", "loud"), (2, "loud"), ("1", "loud"), ("NaN", "ratio"), ("1e999", "ratio"), (3, "text"), (None, "text")],
)  # fmt: skip
def test_what_could_mean_something_else_is_left_and_refused(value: object, name: str) -> None:
    found = faults(json.dumps({"text": "hi", name: value}))
    assert [each["pointer"] for each in found] == [f"/{name}"]


def test_coercion_reaches_into_arrays_and_enumerations() -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {"sides": {"enum": [4, 6]}, "n": {"type": "array", "items": {"type": "integer"}}},
        }
    )
    text = prepared('{"sides":"6","n":[1,"2"]}', schema)
    assert isinstance(text, str)
    assert json.loads(text) == {"sides": 6, "n": [1, 2]}
    assert [each["pointer"] for each in faults('{"sides":"5"}', schema)] == ["/sides"]


def test_every_choice_of_an_enumeration_is_named() -> None:
    schema = json.dumps({"type": "object", "properties": {"sides": {"enum": [4, 6, 8, 10, 12, "a,b"]}}})
    assert [each["message"] for each in faults('{"sides":7}', schema)] == ['must be one of 4, 6, 8, 10, 12, "a,b"']
    assert prepared('{"sides":12}', schema) == '{"sides":12}'


def test_a_valid_string_that_looks_like_a_number_stays_a_string() -> None:
    assert prepared('{"text":"3","count":"4"}') == '{"text":"3","count":4}'


def test_coercion_keeps_the_digits_of_the_other_numbers() -> None:
    text = prepared('{"text":"a","count":"1","ratio":0.1}')
    assert text == '{"text":"a","count":1,"ratio":0.1}'


def test_a_schema_that_leads_elsewhere_is_not_followed() -> None:
    error = prepared("{}", '{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}')
    assert isinstance(error, CallError)
    assert error.code is Code.CONFIG_PLUGIN_INVALID


def test_pointers_are_escaped() -> None:
    assert pointer(["a/b", "c~d", 0]) == "/a~1b/c~0d/0"


@given(st.text(max_size=300))
def test_any_text_is_either_an_object_or_refused(text: str) -> None:
    found = prepared(text, OPEN)
    if isinstance(found, str):
        assert isinstance(json.loads(found), dict)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=4))
def test_every_json_object_is_taken_unchanged(value: dict[str, object]) -> None:
    text = json.dumps(value)
    assert prepared(text, OPEN) == text


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=4))
def test_duplicate_keys_are_always_seen(pairs: list[tuple[str, int]]) -> None:
    text = '{"o":[{' + ",".join(f'"{key}":{value}' for key, value in pairs) + "}]}"
    unique = len({key for key, _ in pairs}) == len(pairs)
    assert isinstance(prepared(text, OPEN), str) == unique
