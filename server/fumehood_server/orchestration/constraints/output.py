"""Holds an output against its contract: form first, then rules, then what a model thinks of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.constraints.contract import Contract
from fumehood_server.orchestration.constraints.faults import OutputFault
from fumehood_server.orchestration.constraints.grammar_output import read_text
from fumehood_server.orchestration.constraints.json_output import read_json
from fumehood_server.orchestration.constraints.rules_output import broken_rules

Judge = Callable[[str], Awaitable[str]]
"""Asks a model about an output, given as JSON. Returns why it is wrong; empty: it is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOutput:
    """An output, and what is wrong with it."""

    output_json: str
    """Of text as well, as a JSON string. Empty: there is none."""
    faults: tuple[OutputFault, ...] = ()
    confidence: float | None = None
    """The share of the contract's checks that it passed: form, rules, meaning, each of which needs those before it.
    None: nothing but its form was checked, which says nothing of what is in it."""


async def check_output(
    text: str, contract: Contract, checks: DocumentChecks, *, cut_off: bool = False, judge: Judge | None = None
) -> CheckedOutput:
    """Hold a model's text against a contract. The first check that finds faults is the last.

    `cut_off`: the answer has as many tokens as it may have. `judge`: who is asked what `semantic_check` asks.

    Raises:
        RunFailedError: schema or grammar can't be used, or the judge failed.
    """
    asks = judge if contract.asked.semantic_check else None
    stages = 1 + bool(contract.rules_json) + bool(asks)

    def ended(passed: int, faults: tuple[OutputFault, ...]) -> CheckedOutput:
        confidence = passed / stages if stages > 1 else None
        return CheckedOutput(output_json=output_json, faults=faults, confidence=confidence)

    faults: tuple[OutputFault, ...] = ()
    if contract.asked.grammar:
        output_json, faults = await read_text(text, contract, checks)
    elif contract.reads_json:
        output_json, faults = await read_json(text, contract, checks, cut_off=cut_off)
    else:
        output_json = json.dumps(text, ensure_ascii=False)
    if faults:
        return ended(0, faults)
    faults = await broken_rules(output_json, contract, checks)
    if faults:
        return ended(1, faults)
    if asks is not None:
        why = await asks(output_json)
        if why:
            return ended(stages - 1, (OutputFault(Code.VALIDATION_SEMANTIC_FAILED, "", "meaning", why),))
    return ended(stages, ())
