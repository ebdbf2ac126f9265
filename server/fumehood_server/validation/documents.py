"""Validates one document, arguments or structured output, by its JSON Schema: a pure function of text and schema."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fumehood_server.model.coercion import Coercion
from fumehood_server.validation.budget import Budget, OverBudgetError
from fumehood_server.validation.canonical import canonical_sha256
from fumehood_server.validation.coercion import UNWRAPPED, Mender, unwrapped
from fumehood_server.validation.explanation import explain, fault_json
from fumehood_server.validation.schemas import SchemaUnusableError, Validator, Validators
from fumehood_server.validation.strict_json import JsonError, parse, parse_exact, parse_object

MAX_FAULTS = 20
"""Entries in one answer. A model mends the first ones and sends again."""


class Kind(IntEnum):
    """What a document is. The values are the wire's."""

    ARGUMENTS = 1
    """Mended and normalised where they have to be."""
    OUTPUT = 2
    """Taken as it is, or refused."""
    MODEL_JSON = 3
    """A model's text that was to be JSON: mended, whether it fits then or not."""
    MODEL_TEXT = 4
    """A model's text, under a grammar in GBNF that stands in the schema's place."""
    RULED = 5
    """A model's output as JSON, under the rules that stand in the schema's place."""
    VOTE = 6
    """A replica's output as JSON, of which the value at the pointer in the schema's place is taken."""
    POINTERS = 7
    """A call's arguments, of which JSON pointers in the schema's place find values: see `pointer_values`."""
    SCHEMA = 8
    """The schema of a run's output, as `check_schema` takes it. Accepted as canonical JSON."""


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON text, and what it has to fit."""

    kind: Kind
    digest: str
    """Of the definition that the schema stands in: what is compiled is kept by it."""
    schema_json: str
    """Empty: any JSON is taken. Of some kinds something else: see `Kind`."""
    text: str
    hashed: bool = False
    """Whether the verdict has the canonical hash, which takes Python a microsecond or two for each value."""


class Flaw(IntEnum):
    """Why a document is rejected. The values are the wire's."""

    NOT_JSON = 1
    DOES_NOT_FIT = 2
    SCHEMA_UNUSABLE = 3


@dataclass(frozen=True, slots=True)
class Accepted:
    """The document fits. `text` is what is handed on."""

    text: str
    canonical_sha256: str = field(default="", compare=False)
    """Of what is handed on, where it was asked for; see `canonical`."""
    coercions: tuple[Coercion, ...] = ()
    """What was mended."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The document doesn't fit, or can't be checked."""

    flaw: Flaw
    problem: str = ""
    """In words, where there is just one."""
    faults: tuple[dict[str, str], ...] = ()
    """One for each place at fault: pointer, rule, message."""


Verdict = Accepted | Rejected


def check(document: Document, validators: Validators, budget: Budget) -> Verdict:
    """Whether arguments or an output fit their schema, and what of them is handed on.

    The text is kept where nothing has to be mended or settled, so that no number loses a digit on the way.

    Raises:
        OverBudgetError: it takes more than `budget`, which says so (`hands_over`).
    """
    if budget.hands_over and is_large(document, budget):
        raise OverBudgetError
    if document.kind is Kind.ARGUMENTS:
        text = unwrapped(document.text)
        if text is not document.text:
            made = check(replace(document, text=text), validators, budget)
            return replace(made, coercions=(UNWRAPPED, *made.coercions)) if isinstance(made, Accepted) else made
    return _check(document, validators, budget)


def _check(document: Document, validators: Validators, budget: Budget) -> Verdict:
    try:
        value = parse(document.text) if document.kind is Kind.OUTPUT else parse_object(document.text)
    except JsonError as exc:
        return Rejected(Flaw.NOT_JSON, exc.problem)
    try:
        return _held_against_schema(document, value, validators, budget)
    except SchemaUnusableError as exc:
        return Rejected(Flaw.SCHEMA_UNUSABLE, str(exc))


def _held_against_schema(document: Document, value: Any, validators: Validators, budget: Budget) -> Verdict:  # noqa: ANN401 - JSON
    text, is_output = document.text, document.kind is Kind.OUTPUT
    if not document.schema_json:
        return _accepted(document, value, text)
    validator = validators.get(document.digest, document.schema_json, output=is_output)
    if not validator.can_take(text, value, budget):
        return _too_much(document, budget)
    if is_output:
        return Accepted(text) if validator.is_valid(value) else _faults(validator, document, value, budget)
    return _settle(validator, document, value, budget)


def _settle(validator: Validator, document: Document, arguments: dict[str, Any], budget: Budget) -> Verdict:
    """The arguments as the plugin gets them."""
    text = document.text
    if validator.is_valid(arguments):
        return _accepted(document, arguments, validator.normalise(text, arguments, budget))
    mended = parse_exact(text)
    coercions = Mender(validator, text, mended, budget).mend()
    if coercions is not None:
        text = json.dumps(mended, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return replace(_accepted(document, None, validator.normalise(text, mended, budget)), coercions=coercions)
    return _faults(validator, document, mended, budget)


def _accepted(document: Document, value: Any, settled: str) -> Accepted:  # noqa: ANN401 - any JSON value
    """The document, handed on as `settled`; `value` is what its own text was read as."""
    if not document.hashed:
        return Accepted(settled)
    return Accepted(settled, canonical_sha256(value if settled is document.text else json.loads(settled), settled))


def is_large(document: Document, budget: Budget) -> bool:
    """Whether it is over the budget by what is seen at once."""
    text = document.text
    return (
        len(text) > budget.chars
        or not budget.takes_schema(document.schema_json)
        or text.count(",") + text.count("[") + text.count("{") >= budget.values
    )


def _too_much(document: Document, budget: Budget) -> Rejected:
    if budget.hands_over:
        raise OverBudgetError
    if document.kind is Kind.OUTPUT:
        return _one_fault("it is too large or deep for this schema")
    return _one_fault("the arguments are too many or too deep for this tool's schema")


def _faults(validator: Validator, document: Document, value: Any, budget: Budget) -> Rejected:  # noqa: ANN401 - JSON
    """One entry for each place at fault. A place that breaks several rules is named with the first."""
    output = document.kind is Kind.OUTPUT
    if not validator.can_explain(document.text, value, budget):
        if budget.hands_over:
            raise OverBudgetError
        if output:
            return _one_fault("it does not fit, and is too large to say where")
        what = "something in the arguments does not fit the schema"
        return _one_fault(f"{what}; they are too many or too long to say what")
    found = explain(
        validator.errors(value),
        unknown="in the output schema" if output else "an argument of this tool",
        limit=MAX_FAULTS,
        at_names=not output,
    )
    return Rejected(Flaw.DOES_NOT_FIT, faults=tuple(found))


def _one_fault(message: str) -> Rejected:
    return Rejected(Flaw.DOES_NOT_FIT, faults=(fault_json("", "size", message),))
