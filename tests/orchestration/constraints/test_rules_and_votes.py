"""Rules over outputs, and what replicas vote by: as functions of one document."""

from __future__ import annotations

import json

import pytest
from fumehood_server.validation.budget import INLINE, PROCESS, Budget, OverBudgetError
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Rejected, Verdict
from fumehood_server.validation.model_text.pointers import NothingThereError, value_at
from fumehood_server.validation.schemas import Validators
from hypothesis import given
from hypothesis import strategies as st

OUTPUT = {"a": {"b": [1, "two", {"~/": 3.5}]}, "": 0, "0": "zero", "when": "2026-11-23"}


def ruled(rules: list[list[object]], output: object = OUTPUT, budget: Budget = PROCESS) -> Verdict:
    return check_document(Document(Kind.RULED, "", json.dumps(rules), json.dumps(output)), Validators(), budget)


def vote(text: str, pointer: str = "", budget: Budget = PROCESS) -> Verdict:
    return check_document(Document(Kind.VOTE, "", pointer, text), Validators(), budget)


def vote_hash(text: str, pointer: str = "") -> str:
    verdict = vote(text, pointer)
    assert isinstance(verdict, Accepted)
    return verdict.canonical_sha256


def test_patterns_of_all_rules_together_are_little_work_or_done_elsewhere() -> None:
    def rules(*patterns: str) -> list[list[object]]:
        return [[f"rule {n}", "/when", {"type": "string", "pattern": each}] for n, each in enumerate(patterns)]

    assert isinstance(ruled(rules(*[f"^[0-9]{{4}}-{n}" for n in range(20)]), budget=INLINE), Rejected)
    many = rules(*[f"[a-z]{{{1000 - n}}}" for n in range(16)])
    with pytest.raises(OverBudgetError):
        ruled(many, budget=INLINE)
    assert isinstance(ruled(many), Rejected)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [("", OUTPUT), ("/a/b/1", "two"), ("/a/b/2/~0~1", 3.5), ("/", 0), ("/0", "zero")],
)
def test_a_pointer_names_its_value(pointer: str, value: object) -> None:
    assert value_at(OUTPUT, pointer) == value


@pytest.mark.parametrize(
    "pointer", ["a", "/b", "/a/b/3", "/a/b/-1", "/a/b/01", "/a/b/-", "/when/0", "/a/b/1/x", "/a" * 9999]
)
def test_a_pointer_to_nothing_is_told_apart_from_one_to_null(pointer: str) -> None:
    with pytest.raises(NothingThereError):
        value_at(OUTPUT, pointer)
    assert value_at({"a": None}, "/a") is None


@pytest.mark.parametrize(
    ("pointer", "schema", "message"),
    [
        ("/a/b/0", {"enum": [1, 2]}, ""),
        ("/a/b/0", {"enum": ["1", True]}, 'must be one of "1", true'),
        ("/a/b/0", {"type": "number", "minimum": 1, "maximum": 1}, ""),
        ("/a/b/0", {"type": "number", "minimum": 1.5}, "less than the minimum"),
        ("/a/b/1", {"type": "number", "minimum": 0}, "not of type"),
        ("/when", {"type": "string", "pattern": "^[0-9-]{10}$"}, ""),
        ("/when", {"type": "string", "pattern": "^[a-z]"}, "does not match"),
        ("/nowhere", {}, "there is no such value"),
        ("/when", {}, ""),
    ],
)
def test_a_rule_is_kept_or_broken(pointer: str, schema: dict[str, object], message: str) -> None:
    verdict = ruled([["mine", pointer, schema]])
    if not message:
        assert isinstance(verdict, Accepted)
        return
    assert isinstance(verdict, Rejected)
    [fault] = verdict.faults
    assert (fault["pointer"], fault["rule"]) == (pointer, "mine")
    assert message in fault["message"]


def test_each_broken_rule_is_told_and_the_kept_ones_are_not() -> None:
    rules: list[list[object]] = [["one", "/a", {"type": "string"}], ["two", "/when", {}], ["three", "/0", {"const": 1}]]
    verdict = ruled(rules)
    assert isinstance(verdict, Rejected)
    assert [fault["rule"] for fault in verdict.faults] == ["one", "three"]


def test_a_pattern_that_takes_more_than_linear_time_can_not_be_used() -> None:
    verdict = ruled([["back", "/when", {"type": "string", "pattern": r"(.)\1"}]])
    assert isinstance(verdict, Rejected)
    assert verdict.flaw is Flaw.SCHEMA_UNUSABLE


def test_much_work_is_left_to_the_process_and_little_is_not() -> None:
    rules: list[list[object]] = [["long", "", {"type": "string", "pattern": "a*b"}]]
    assert isinstance(ruled(rules, "aab", INLINE), Accepted)
    with pytest.raises(OverBudgetError):
        ruled(rules * 64, "a" * 2_000 + "b", INLINE)
    assert isinstance(vote("[1]", budget=INLINE), Accepted)
    with pytest.raises(OverBudgetError):
        vote(json.dumps("a" * 100_000), budget=INLINE)
    for kind in (Kind.MODEL_JSON, Kind.MODEL_TEXT):
        with pytest.raises(OverBudgetError):
            check_document(Document(kind, "", "", "{}"), Validators(), INLINE)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":2}', ' { "b": 2.0, "a": 1 } ', True),
        ('"é"', '"\\u00e9"', True),
        ("[1,2]", "[2,1]", False),
        ("1", '"1"', False),
        ("12345678901234567890123", "12345678901234567890123", True),
    ],
)
def test_votes_are_compared_by_what_their_json_says(one: str, other: str, same: bool) -> None:
    assert (vote_hash(one) == vote_hash(other)) is same


def test_a_vote_is_the_value_at_its_pointer() -> None:
    assert (
        vote_hash('{"a":{"b":1},"why":"x"}', "/a")
        == vote_hash('{"why":"y","a":{"b":1.0}}', "/a")
        == vote_hash('{"b":1}')
    )
    verdict = vote('{"a":1}', "/b")
    assert isinstance(verdict, Rejected)
    assert verdict.flaw is Flaw.DOES_NOT_FIT


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_any_json_has_one_hash_however_it_is_written(value: object) -> None:
    text = json.dumps(value)
    verdict = vote(text)
    if isinstance(verdict, Rejected):  # NaN, Infinity, halves of surrogate pairs, too deep
        assert verdict.flaw is Flaw.NOT_JSON
    else:
        assert verdict.canonical_sha256 == vote_hash(json.dumps(value, indent=1, ensure_ascii=False))
