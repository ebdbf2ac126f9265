"""Rules over a model's output: each a schema of its own for the value at a JSON pointer."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fumehood_server.model.pattern_cost import pattern_costs
from fumehood_server.validation.budget import KIB, Budget, OverBudgetError
from fumehood_server.validation.documents import MAX_FAULTS, Accepted, Document, Flaw, Rejected, Verdict
from fumehood_server.validation.explanation import explain, fault_json
from fumehood_server.validation.model_text.pointers import NothingThereError, value_at
from fumehood_server.validation.schemas import SchemaUnusableError, Validator, Validators
from fumehood_server.validation.strict_json import JsonError, parse

_INLINE_CHARS = 64 * KIB
"""Of the text, times the rules."""
_SUBSCHEMAS_A_RULE = 4
"""As many take as long to compile as what each rule takes beside its own: 100 µs."""


def check_rules(document: Document, validators: Validators, budget: Budget) -> Verdict:
    """Whether an output keeps to all of its rules. Faults have the rule's name as `rule`, and its pointer.

    The rules stand in the schema's place: a JSON array of `[name, pointer, schema]`.

    Raises:
        OverBudgetError: it takes more than `budget`, which says so.
    """
    rules: list[tuple[str, str, dict[str, Any]]] = json.loads(document.schema_json)
    if budget.hands_over and (
        len(rules) * len(document.text) > _INLINE_CHARS
        or len(rules) * _SUBSCHEMAS_A_RULE > budget.subschemas
        or pattern_costs(rules, budget.pattern_states) is None  # each is a schema of its own
    ):
        raise OverBudgetError
    try:
        output = parse(document.text)
    except JsonError as exc:
        return Rejected(Flaw.NOT_JSON, exc.problem)
    faults = []
    for name, pointer, schema in rules:
        try:
            message = _broken(document.text, value_at(output, pointer), schema, validators, budget)
        except NothingThereError:
            message = "there is no such value"
        except SchemaUnusableError as exc:
            return Rejected(Flaw.SCHEMA_UNUSABLE, f"the rule {name} can't be used: {exc}")
        if message:
            faults.append(fault_json(pointer, name, message))
    return Rejected(Flaw.DOES_NOT_FIT, faults=tuple(faults[:MAX_FAULTS])) if faults else Accepted(document.text)


def _broken(text: str, value: Any, schema: dict[str, Any], validators: Validators, budget: Budget) -> str:  # noqa: ANN401
    """How a value breaks a rule. Empty: it does not. `text` holds the value, and more."""
    schema_json = json.dumps(schema)
    validator = validators.get(hashlib.sha256(schema_json.encode()).hexdigest(), schema_json, output=True)
    if not validator.can_take(text, value, budget):
        if budget.hands_over:
            raise OverBudgetError
        return "the value is too large for this rule"
    return "" if validator.is_valid(value) else _why(validator, text, value, budget)


def _why(validator: Validator, text: str, value: Any, budget: Budget) -> str:  # noqa: ANN401 - any JSON value
    if not validator.can_explain(text, value, budget):
        return "the value breaks this rule, and is too large to say how"
    found = explain(validator.errors(value), unknown="in the rule", limit=1)
    return found[0]["message"] if found else "the value breaks this rule"
