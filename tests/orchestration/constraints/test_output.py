"""Outputs against contracts, from form to meaning: which code, and what is given all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.constraints.contract import prepare
from fumehood_server.orchestration.constraints.output import CheckedOutput, check_output
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.request import OutputContract, Rule

ANSWER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"a": {"enum": ["yes", "no"]}, "n": {"type": "integer"}},
    "required": ["a"],
}
AMBIGUOUS = 'root ::= s\ns ::= s s | "a"'
YES_NO = 'root ::= "yes" | "no"'


async def held(text: str, contract: OutputContract, checks: DocumentChecks, *, cut_off: bool = False) -> CheckedOutput:
    return await check_output(text, await prepare(contract, checks, key=("me",)), checks, cut_off=cut_off)


def codes(checked: CheckedOutput) -> list[Code]:
    return [fault.code for fault in checked.faults]


@pytest.mark.parametrize(
    ("text", "mendable", "output", "code"),
    [
        ('{"a": "yes"}', False, '{"a": "yes"}', None),
        ('{"a": "yes"}\n', False, '{"a": "yes"}\n', None),
        ('```json\n{"a": "yes"}\n```', False, "", Code.CONSTRAINT_JSON_INVALID),
        ('```json\n{"a": "yes"}\n```', True, '{"a": "yes"}', None),
        ("{'a': 'yes'", False, "", Code.CONSTRAINT_JSON_INVALID),
        ("{'a': 'yes'", True, '{"a":"yes"}', None),
        ('{"a": "Yes."}', False, '{"a": "Yes."}', Code.CONSTRAINT_ENUM_UNRECOGNIZED),
        ('{"a": "Yes."}', True, '{"a":"yes"}', None),
        ('{"a": "perhaps"}', True, '{"a": "perhaps"}', Code.CONSTRAINT_ENUM_UNRECOGNIZED),
        ('{"n": 1}', True, '{"n": 1}', Code.CONSTRAINT_SCHEMA_INVALID),
        ('{"a": "yes", "n": "1"}', False, '{"a": "yes", "n": "1"}', Code.CONSTRAINT_SCHEMA_INVALID),
        ("I would rather not.", True, "", Code.CONSTRAINT_JSON_INVALID),
        ("", True, "", Code.CONSTRAINT_JSON_INVALID),
        ('{"a": "yes", "a": "no"}', False, "", Code.CONSTRAINT_JSON_INVALID),
    ],
)
async def test_json_is_taken_mended_or_refused_by_its_code(
    checks: DocumentChecks, *, text: str, mendable: bool, output: str, code: Code | None
) -> None:
    checked = await held(text, OutputContract(schema=ANSWER, repair_allowed=mendable), checks)
    assert checked.output_json == output
    assert codes(checked) == ([code] if code else [])
    assert checked.confidence is None


async def test_every_fault_has_its_place_and_code(checks: DocumentChecks) -> None:
    checked = await held('{"a": "x", "n": 1.5}', OutputContract(schema=ANSWER), checks)
    assert {(fault.code, fault.pointer, fault.rule) for fault in checked.faults} == {
        (Code.CONSTRAINT_ENUM_UNRECOGNIZED, "/a", "enum"),
        (Code.CONSTRAINT_SCHEMA_INVALID, "/n", "type"),
    }
    assert all(fault.message for fault in checked.faults)


@pytest.mark.parametrize(("text", "output", "code"), [
    ("Yes.", '"yes"', None), ("maybe", "", Code.CONSTRAINT_ENUM_UNRECOGNIZED),
    ('"maybe"', '"maybe"', Code.CONSTRAINT_ENUM_UNRECOGNIZED), ('"no"', '"no"', None),
])  # fmt: skip
async def test_an_output_that_is_an_enumeration_needs_no_quotes(
    checks: DocumentChecks, text: str, output: str, code: Code | None
) -> None:
    checked = await held(text, OutputContract(schema={"enum": ["yes", "no"]}, repair_allowed=True), checks)
    assert (checked.output_json, codes(checked)) == (output, [code] if code else [])


async def test_what_was_cut_off_is_not_closed_by_mending(checks: DocumentChecks) -> None:
    contract = OutputContract(schema=ANSWER, repair_allowed=True)
    cut_off = await held('{"a": "yes", "n": 12', contract, checks, cut_off=True)
    assert codes(cut_off) == [Code.CONSTRAINT_JSON_INVALID]
    assert "in the middle" in cut_off.faults[0].message
    whole = await held('{"a": "yes", "n": 12}', contract, checks, cut_off=True)
    assert not whole.faults


@pytest.mark.parametrize(
    ("grammar", "text", "mendable", "output", "code"),
    [
        (YES_NO, "yes", False, '"yes"', None),
        (YES_NO, "yes\n", False, '"yes\\n"', Code.CONSTRAINT_GRAMMAR_REJECTED),
        (YES_NO, "yes\n", True, '"yes"', None),
        (YES_NO, "```\nno\n```", True, '"no"', None),
        (YES_NO, "Yes", True, '"Yes"', Code.CONSTRAINT_GRAMMAR_REJECTED),
        ('root ::= "[" [0-9] "]"', "[1]", False, "[1]", None),
        ('root ::= "[" [0-9] "}"', "[1}", False, '"[1}"', None),
        ("root ::= [0-9]+", "12", False, '"12"', None),
    ],
)
async def test_text_is_held_against_its_grammar(
    checks: DocumentChecks, *, grammar: str, text: str, mendable: bool, output: str, code: Code | None
) -> None:
    checked = await held(text, OutputContract(grammar=grammar, repair_allowed=mendable), checks)
    assert (checked.output_json, codes(checked)) == (output, [code] if code else [])


async def test_rules_come_after_the_form_and_say_which_were_broken(checks: DocumentChecks) -> None:
    rules = (Rule(name="few", pointer="/n", maximum=9), Rule(name="word", pointer="/a", pattern="^y"))
    contract = OutputContract(schema=ANSWER, rules=rules)
    kept = await held('{"a": "yes", "n": 9}', contract, checks)
    assert (codes(kept), kept.confidence) == ([], 1.0)
    broken = await held('{"a": "no"}', contract, checks)
    assert codes(broken) == [Code.VALIDATION_RULE_FAILED] * 2
    assert [(fault.rule, fault.pointer) for fault in broken.faults] == [("few", "/n"), ("word", "/a")]
    assert (broken.output_json, broken.confidence) == ('{"a": "no"}', 0.5)
    formless = await held('{"n": 10}', contract, checks)
    assert (codes(formless), formless.confidence) == ([Code.CONSTRAINT_SCHEMA_INVALID], 0.0)


async def test_rules_hold_for_text_and_for_json_without_a_schema(checks: DocumentChecks) -> None:
    spoken = OutputContract(rules=(Rule(name="polite", pattern="please"),))
    assert not (await held("Stop, please.", spoken, checks)).faults
    assert codes(await held("Stop.", spoken, checks)) == [Code.VALIDATION_RULE_FAILED]
    placed = OutputContract(rules=(Rule(name="one", pointer="/0", one_of=(1, "1")),))
    assert not (await held("[1]", placed, checks)).faults
    assert codes(await held("one", placed, checks)) == [Code.CONSTRAINT_JSON_INVALID]


@pytest.mark.parametrize(
    ("contract", "code"),
    [
        (OutputContract(schema={"type": "objekt"}), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(schema={"$ref": "https://example.com/schema"}), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(schema={"pattern": "(a)\\1"}), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(schema={"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(grammar="yes-or-no"), Code.CONFIG_GRAMMAR_NOT_FOUND),
        (OutputContract(grammar="root ::= <think>"), Code.CONFIG_GRAMMAR_NOT_FOUND),
        (OutputContract(rules=(Rule(name="x", pattern="(?=a)"),)), Code.VALIDATION_RULE_FAILED),
    ],
)
async def test_a_contract_that_can_not_be_used_is_told_before_anybody_is_asked(
    checks: DocumentChecks, contract: OutputContract, code: Code
) -> None:
    with pytest.raises(RunFailedError) as told:
        await prepare(contract, checks, key=("me",))
    assert told.value.error.code is code


async def test_a_schema_whose_patterns_take_long_to_build_is_checked_beside(checks: DocumentChecks) -> None:
    few: Mapping[str, Any] = {"type": "string", "pattern": r"^\p{L}+$"}
    assert not (await held('"abc"', OutputContract(schema=few), checks)).faults
    assert checks.pid is None
    names = {"properties": {"a": {"type": "string", "pattern": r"^\p{L}{30}$"}}}
    assert not (await held('{"a": "abcdefghijklmnopqrstabcdefghij"}', OutputContract(schema=names), checks)).faults
    assert checks.pid is not None
    for pattern, said in ((r"\pL{180}", "20000 states"), (r"(?=\p{L}{30})", "in linear time")):
        with pytest.raises(RunFailedError) as told:
            await prepare(OutputContract(schema={"pattern": pattern}), checks, key=("me",))
        assert told.value.error.code is Code.CONFIG_SCHEMA_REQUIRED
        assert said in told.value.error.message
        assert pattern in told.value.error.message
        assert told.value.error.details["hint"]


@pytest.mark.parametrize(
    ("contract", "text", "control", "code"),
    [
        (OutputContract(schema={}, repair_allowed=True), '{"' * 10_000, "{'a': 1", Code.CONSTRAINT_JSON_INVALID),
        (OutputContract(grammar=AMBIGUOUS), "a" * 3_000, "a" * 30, Code.CONSTRAINT_GRAMMAR_REJECTED),
        pytest.param(
            *(OutputContract(grammar='root ::= ("a"?){2000}'), "a" * 1_900, "a", Code.CONSTRAINT_GRAMMAR_REJECTED),
            marks=pytest.mark.slow("seconds of processor time, as for the other grammar"),
        ),
    ],
)
async def test_text_made_to_take_for_ever_is_one_outputs_fault(
    checks: DocumentChecks, contract: OutputContract, text: str, control: str, code: Code
) -> None:
    ready = await prepare(contract, checks, key=("me",))
    hostile = await check_output(text, ready, checks)
    assert codes(hostile) == [code]
    assert "too long" in hostile.faults[0].message
    assert not (await check_output(control, ready, checks)).faults


async def test_what_a_judge_says_comes_last(checks: DocumentChecks) -> None:
    asked: list[str] = []

    async def says_no(output_json: str) -> str:
        asked.append(output_json)
        return "it is wrong"

    rules = (Rule(name="few", pointer="/n", maximum=9),)
    contract = await prepare(OutputContract(schema=ANSWER, rules=rules, semantic_check="Is it?"), checks, key=("me",))
    formless = await check_output("{}", contract, checks, judge=says_no)
    assert (formless.confidence, asked) == (0.0, [])
    judged = await check_output('{"a":"no","n":1}', contract, checks, judge=says_no)
    assert codes(judged) == [Code.VALIDATION_SEMANTIC_FAILED]
    assert (judged.confidence, asked) == (2 / 3, ['{"a":"no","n":1}'])
