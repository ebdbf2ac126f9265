"""What becomes of a model's text that was to be JSON. Beside each thing that is mended, one like it that is not."""

from __future__ import annotations

import json

import pytest
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Rejected, Verdict
from fumehood_server.validation.schemas import Validators
from fumehood_server.validation.strict_json import parse
from hypothesis import given
from hypothesis import strategies as st

YES_NO = '{"enum":["yes","no"]}'
ANSWER = '{"type":"object","properties":{"a":{"enum":["yes","no"]}},"required":["a"],"additionalProperties":false}'


def mend(text: str, schema: str = "") -> Verdict:
    return check_document(Document(Kind.MODEL_JSON, schema, schema, text), Validators(), PROCESS)


def mended(text: str, schema: str = "") -> tuple[object, list[str]]:
    made = mend(text, schema)
    assert isinstance(made, Accepted), made
    return json.loads(made.text), [each.rule for each in made.coercions]


@pytest.mark.parametrize(
    ("text", "value", "rules"),
    [
        ('{"a": 1}', {"a": 1}, []),
        ('```json\n{"a": 1}\n```', {"a": 1}, ["fence"]),
        ('```\n{"a": 1}\n```\nIs that right?', {"a": 1}, ["fence"]),
        ('``` json {"a": 1}```', {"a": 1}, ["fence"]),
        ('```json\n{"a": 1}', {"a": 1}, ["fence"]),
        ('```json\n{"code": "```"}\n```', {"code": "```"}, ["text"]),
        ('Here it is: {"a": 1}. Good luck!', {"a": 1}, ["text"]),
        ('First [1], then {"a": [2, 3, 4]}', {"a": [2, 3, 4]}, ["text"]),
        ('{"a": 1', {"a": 1}, ["json"]),
        ("{'a': True, 'b': None}", {"a": True, "b": None}, ["json"]),
        ('{"a": 1, "b": [1, 2,],}', {"a": 1, "b": [1, 2]}, ["json"]),
        ('{"a": 1 // one\n}', {"a": 1}, ["json"]),
        ('{a: "b"}', {"a": "b"}, ["json"]),
        ("```json\n{'a': 1,}\n```", {"a": 1}, ["json"]),
        ('"{\\"a\\": 1}"', {"a": 1}, ["object"]),
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}, []),
    ],
)
def test_json_is_found_and_mended(text: str, value: object, rules: list[str]) -> None:
    schema = '{"type":"object"}' if rules == ["object"] else ""
    assert mended(text, schema) == (value, rules)


@pytest.mark.parametrize(
    "text", ["", "I can't do that.", "null and void", "1 and 2", "[" * 5000, '{"a":' * 5000, "[1e999"]
)
def test_what_is_nowhere_near_json_stays_none(text: str) -> None:
    made = mend(text)
    assert isinstance(made, Rejected)
    assert made.flaw is Flaw.NOT_JSON


def test_a_value_within_a_broken_one_is_not_taken_for_the_answer() -> None:
    schema = '{"type":"object"}'
    assert mended('{"x": {"y": 1}, \'z\': 2}', schema) == ({"x": {"y": 1}, "z": 2}, ["json"])
    assert mended('{"x": {"y": 1}, "z": 2}', schema) == ({"x": {"y": 1}, "z": 2}, [])


def test_what_fits_is_preferred_to_what_is_longer() -> None:
    text = '```\n{"a":"no"}\n```\nas in\n```\n[1,2,3,4,5,6,7,8,9,10]\n```'
    assert mended(text, ANSWER) == ({"a": "no"}, ["fence"])
    assert mended(text) == ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], ["fence"])


@pytest.mark.parametrize(
    "text", ["yes", "Yes.", '"YES"', '"Yes!"', "**yes**", "'yes'", " yes\n", "`Yes`.", "\u201cYes.\u201d"]
)
def test_a_value_of_an_enumeration_is_recognised(text: str) -> None:
    assert mended(text, YES_NO) == ("yes", ["enum"])


@pytest.mark.parametrize("text", ["maybe", "not yes", "yes no", "yes, no", "y", "", "yesno", "yes" * 100])
def test_what_names_no_value_or_several_is_not(text: str) -> None:
    assert isinstance(mend(text, YES_NO), Rejected)


def test_values_that_differ_by_case_alone_are_told_apart_or_not_recognised() -> None:
    schema = '{"enum":["Yes","yes","no"]}'
    assert mended('"yes"', schema) == ("yes", [])
    assert mended("Yes", schema) == ("Yes", ["enum"])
    assert mended("NO", schema) == ("no", ["enum"])
    assert isinstance(mend("YES", schema), Rejected)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"enum": ["x y", "z"]}, "X  Y.", "x y"),
        ({"anyOf": [{"enum": ["x", "z"]}, {"type": "null"}]}, "Z", "z"),
        ({"const": "Z"}, "z", "Z"),
        ({"enum": ["x", 1]}, "X", "x"),
        ({"$ref": "#/$defs/e"}, "E!", "e"),
        ({"enum": ["x", "z"]}, "y", "y"),
        ({"enum": ["x", "X"]}, "x.", "x."),
        ({"enum": [1, 2]}, "1", "1"),
    ],
)
def test_values_within_the_output_are_recognised_too(schema: dict[str, object], value: str, expected: str) -> None:
    whole = {"type": "object", "properties": {"0": {"items": schema}}, "$defs": {"e": {"enum": ["e"]}}}
    made, rules = mended(json.dumps({"0": [value], "note": value}), json.dumps(whole))
    assert made == {"0": [expected], "note": value}
    assert rules == (["enum"] if expected != value else [])


@given(st.text(alphabet="{}[]\"',:\\ \n`at1e-./#é\ud800", max_size=60))
def test_whatever_is_made_of_any_text_is_strict_json(text: str) -> None:
    for schema in ("", ANSWER, YES_NO):
        made = mend(text, schema)
        if isinstance(made, Accepted):
            parse(made.text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_json_that_is_whole_is_never_changed(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert mend(text) == Accepted(text)
