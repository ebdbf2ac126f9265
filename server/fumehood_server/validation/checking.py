"""Checks a document of any kind: of callers and plugins by its schema, of models by what its kind says.

What models write needs libraries that are memory for who has no models: each is imported with its first document.
"""

from __future__ import annotations

from fumehood_server.model.schema import SchemaError, check_schema
from fumehood_server.validation.budget import Budget, OverBudgetError
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Rejected, Verdict, check, is_large
from fumehood_server.validation.explanation import fault_json
from fumehood_server.validation.pointer_values import find_values
from fumehood_server.validation.schemas import Validators


def check_document(document: Document, validators: Validators, budget: Budget) -> Verdict:
    """The verdict that the document's kind asks for.

    Raises:
        OverBudgetError: it takes more than `budget`, which says so (`hands_over`).
    """
    if document.kind <= Kind.OUTPUT:
        return check(document, validators, budget)
    if budget.hands_over and is_large(document, budget):
        raise OverBudgetError
    if document.kind is Kind.POINTERS:
        return find_values(document)
    return _check_model_text(document, validators, budget)


def _check_model_text(document: Document, validators: Validators, budget: Budget) -> Verdict:
    match document.kind:
        case Kind.VOTE:
            from fumehood_server.validation.model_text.votes import check_vote  # noqa: PLC0415

            return check_vote(document)
        case Kind.RULED:
            from fumehood_server.validation.model_text.rules import check_rules  # noqa: PLC0415

            return check_rules(document, validators, budget)
    if budget.hands_over:  # nothing bounds what these take but the process
        raise OverBudgetError
    if document.kind is Kind.SCHEMA:
        return _check_schema(document.text)
    if document.kind is Kind.MODEL_JSON:
        from fumehood_server.validation.model_text.mending import mend  # noqa: PLC0415

        return mend(document, validators)
    try:
        from fumehood_server.validation.model_text.grammar import check_grammar  # noqa: PLC0415
    except ImportError:
        return Rejected(Flaw.SCHEMA_UNUSABLE, "can't be checked here: install fumehood-server[grammars]")
    return check_grammar(document)


def _check_schema(text: str) -> Verdict:
    """A hint is the one fault's message."""
    try:
        return Accepted(check_schema(text, arguments=False))
    except SchemaError as exc:
        hints = (fault_json("", "hint", exc.hint),) if exc.hint else ()
        return Rejected(Flaw.SCHEMA_UNUSABLE, exc.problem, hints)
