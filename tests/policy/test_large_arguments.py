"""Rules about large arguments: what they look at is found in the validator process, and they say the same."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import AsyncIterator
from types import FrameType

import pytest
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.steps.permit import decide
from fumehood_server.model.policy import Condition
from fumehood_server.policy import RuleSet
from fumehood_server.telemetry import get_logger
from fumehood_server.validation.budget import INLINE, PROCESS
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Accepted, Document, Verdict
from fumehood_server.validation.pointer_values import MAX_FOUND_CHARS, MAX_TEXT_CHARS, pointers_document, read_values
from fumehood_server.validation.schemas import Validators

from .test_rules import ALLOW, ASK, CONDITIONS, DENY, VALUES, rule, said, unset

FILLING = "x" * INLINE.chars


@pytest.fixture
async def checks() -> AsyncIterator[DocumentChecks]:
    async with DocumentChecks(get_logger()) as checks:
        yield checks


async def validated(checks: DocumentChecks, document: Document) -> Verdict:
    return checks.check_now(document) or await checks.check(("caller",), document)


def validated_here(document: Document) -> Accepted:
    """As the process does it."""
    found = check_document(document, Validators(PROCESS), PROCESS)
    assert isinstance(found, Accepted)
    return found


def test_rules_say_of_large_arguments_what_they_say_of_the_same_small_ones() -> None:
    places = ("/x", "/y/0", "/z/*", "/x/a", "/y/b")
    rules = RuleSet(
        [
            rule(f"{permission}-{number}-{place}", permission, Condition(pointer=place, **terms))  # type: ignore[arg-type] # its own keywords
            for permission in (ALLOW, ASK, DENY)
            for place in places
            for number, terms in enumerate(CONDITIONS)
        ]
    )
    of_tool = rules.rules_of(unset())
    long = "a" * (MAX_TEXT_CHARS + 1)
    cases = [{}, *({"x": x, "y": [y], "z": [y, x]} for x in (*VALUES, long) for y in VALUES), {"z": [1] * 1500}]
    wrong = []
    for case in cases:
        text = json.dumps(case)
        document = pointers_document(of_tool.pointers, text)
        values = read_values(document, validated_here(document).text)
        if of_tool.decide("", values, every=True) != of_tool.decide("", text, every=True):
            wrong.append(case)
    assert wrong == []


async def test_large_arguments_are_not_parsed_on_the_loop(checks: DocumentChecks) -> None:
    rules = RuleSet([rule("r", DENY, Condition(pointer="/x", equals=("bad",)))])
    called: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_name)

    async def permission(arguments: object) -> str:
        called.clear()
        sys.setprofile(profile)
        try:
            verdict = await decide(rules, unset(), "", json.dumps(arguments), functools.partial(validated, checks))
        finally:
            sys.setprofile(None)
        return verdict.permission

    many: list[object] = [[]] * 300_000
    assert (await permission({"v": many, "x": "bad"}), "parse_arguments" in called) == (DENY, False)
    assert (await permission({"v": many, "x": "good"}), "parse_arguments" in called) == (ASK, False)
    assert (await permission({"v": FILLING, "x": "bad"}), "parse_arguments" in called) == (DENY, False)
    assert (await permission({"v": [], "x": "bad"}), "parse_arguments" in called) == (DENY, True)


async def test_rules_that_come_into_force_meanwhile_decide() -> None:
    rules = RuleSet([rule("r", ALLOW, Condition(pointer="/x", equals=("a",)))])
    asked = 0

    async def validate(document: Document) -> Verdict:
        nonlocal asked
        asked += 1
        if asked == 1:
            rules.take_up(RuleSet([rule("n", DENY, Condition(pointer="/y", equals=("b",)))]))
        return validated_here(document)

    text = json.dumps({"x": "a", "y": "b", "v": FILLING})
    assert (await decide(rules, unset(), "", text, validate)).permission is DENY
    assert asked == 2


def test_what_is_too_much_to_be_told_is_denied_and_not_allowed() -> None:
    element = "y" * MAX_TEXT_CHARS
    arguments = {"v": [element] * (MAX_FOUND_CHARS // MAX_TEXT_CHARS + 1)}
    condition = Condition(pointer="/v/*", pattern="^y")
    document = pointers_document({"/v/*"}, json.dumps(arguments))
    values = read_values(document, validated_here(document).text)
    assert values.chars <= MAX_FOUND_CHARS + 100
    for permission, verdict in ((DENY, DENY), (ALLOW, ASK)):
        assert RuleSet([rule("r", permission, condition)]).rules_of(unset()).decide("", values).permission is verdict
    fewer = {"v": [element] * 10}
    assert said([rule("r", ALLOW, condition)], fewer) is ALLOW
