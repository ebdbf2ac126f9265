"""Mends a model's JSON: out of its code fence, by json-repair, and enumerations by what was meant."""

from __future__ import annotations

import json
from collections.abc import Iterator

import json_repair
from jsonschema_rs import ValidationError, ValidationErrorKind

from fumehood_server.model.coercion import Coercion
from fumehood_server.validation.budget import KIB, PROCESS
from fumehood_server.validation.coercion import UNWRAPPED, place, unwrapped
from fumehood_server.validation.documents import Accepted, Document, Flaw, Rejected, Verdict
from fumehood_server.validation.explanation import pointer
from fumehood_server.validation.model_text.enums import recognise
from fumehood_server.validation.model_text.json_in_text import broken, fenced, spans
from fumehood_server.validation.schemas import SchemaUnusableError, Validator, Validators
from fumehood_server.validation.strict_json import JsonError, parse

MAX_REPAIRED_CHARS = 256 * KIB
"""json-repair takes half a second for so much with usual faults. The process's bound on time ends hostile text."""

MAX_ENUMS = 16
"""Values recognised in one output."""

_NO_VALUE = "\N{REPLACEMENT CHARACTER}"
"""What no enumeration holds: its errors say what it does hold."""

_FENCED = Coercion("", "fence", "the JSON was taken out of a code fence")
_AROUND = Coercion("", "text", "the text around the JSON was left out")
_REPAIRED = Coercion("", "json", "broken JSON was mended")


def mend(document: Document, validators: Validators) -> Verdict:
    """The JSON that a text was meant to be, and what was done to it. It need not fit the schema all the same.

    What fits as it stands is preferred to what was mended, and that to what does not fit. Rejected: there is no JSON
    in the text, nor anything near it.
    """
    try:
        return _mended(document, validators)
    except SchemaUnusableError as exc:
        return Rejected(Flaw.SCHEMA_UNUSABLE, str(exc))


def _mended(document: Document, validators: Validators) -> Verdict:
    validator = validators.get(document.digest, document.schema_json, output=True) if document.schema_json else None
    text, best = document.text.strip(), None
    for found, how in _candidates(text, validator):
        made, coercions = _with_enums(found, validator)
        mended = Accepted(made, coercions=how + coercions)
        if _fits(made, validator):
            return mended
        best = best or mended
    return best or Rejected(Flaw.NOT_JSON, "there is no JSON in the text")


def _candidates(text: str, validator: Validator | None) -> Iterator[tuple[str, tuple[Coercion, ...]]]:
    """What may be meant, the least changed first, and in each way the longest first."""
    if _is_json(text):
        yield text, ()
    inner = unwrapped(text)
    if inner is not text and _is_json(inner):
        yield inner, (UNWRAPPED,)
    named = None if validator is None else _named(text, validator)
    if named is not None:
        yield named
    for how, ways in ((_FENCED, fenced(text)), (_AROUND, spans(text))):
        for found in sorted(ways, key=len, reverse=True):
            if found != text and _is_json(found):
                yield found, (how,)
    repaired = _repaired(broken(text))
    if repaired:
        yield repaired, (_REPAIRED,)


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except JsonError:
        return False
    return True


def _repaired(text: str) -> str:
    """What json-repair makes of a text. Empty: nothing, or what is no JSON."""
    if not text or len(text) > MAX_REPAIRED_CHARS:
        return ""
    try:
        value = json_repair.loads(text, skip_json_loads=True)
        made = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a library meets in text that it was not written for
        return ""
    return made if isinstance(value, dict | list) and _is_json(made) else ""


def _fits(text: str, validator: Validator | None) -> bool:
    if validator is None:
        return True
    value = parse(text)
    return validator.can_take(text, value, PROCESS) and validator.is_valid(value)


def _named(text: str, validator: Validator) -> tuple[str, tuple[Coercion, ...]] | None:
    """A text without JSON's quotes that names a value of the schema's own enumeration."""
    choices = [each for error in validator.errors(_NO_VALUE) for each in _choices(error, [])]
    choice = recognise(text, choices)
    return None if choice is None else (json.dumps(choice, ensure_ascii=False), (_recognised("", choice),))


def _with_enums(text: str, validator: Validator | None) -> tuple[str, tuple[Coercion, ...]]:
    """A JSON text with the values of enumerations as the schema has them."""
    if validator is None:
        return text, ()
    value = json.loads(text)
    if not validator.can_take(text, value, PROCESS) or not validator.can_explain(text, value, PROCESS):
        return text, ()
    holder, made = [value], []
    for error in validator.errors(value):
        path = list(error.instance_path)
        parent, key = place(holder, [0, *path])
        given = parent[key]
        choice = recognise(given, _choices(error, path)) if isinstance(given, str) else None
        if choice is not None and choice != given:
            parent[key] = choice
            made.append(_recognised(pointer(path), choice))
        if len(made) == MAX_ENUMS:
            break
    if not made:
        return text, ()
    return json.dumps(holder[0], ensure_ascii=False, separators=(",", ":")), tuple(made)


def _choices(error: ValidationError, path: list[str | int]) -> list[str]:
    """The texts that an error says would have been taken at a place, in any of the branches for it."""
    kind = error.kind
    if error.instance_path != path:
        return []
    match kind:
        case ValidationErrorKind.Enum():
            return [each for each in kind.options if isinstance(each, str)]
        case ValidationErrorKind.Constant():
            return [kind.expected_value] if isinstance(kind.expected_value, str) else []
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            return [choice for branch in kind.context for each in branch for choice in _choices(each, path)]
    return []


def _recognised(path: str, choice: str) -> Coercion:
    return Coercion(path, "enum", f"it was taken as {json.dumps(choice, ensure_ascii=False)[:64]}")
