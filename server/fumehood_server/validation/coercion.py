"""Mends the mistakes that models make in the types of arguments, where nothing else can have been meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fumehood_server.model.coercion import Coercion
from fumehood_server.validation.budget import Budget, OverBudgetError
from fumehood_server.validation.explanation import pointer
from fumehood_server.validation.schemas import Validator
from fumehood_server.validation.strict_json import JsonError, parse, parse_exact

MAX_REPAIRS = 16
"""Values mended in one call. Each costs a validation or more; arguments with more mistakes are better sent again."""

MAX_VISITS = 1_000
"""Looks at values in arguments that are mended at all: each repair collects all errors anew."""

MAX_COPIED_BYTES = 64 * 1024 * 1024
"""Copies of values in the errors of all repairs together."""

MAX_JSON_CHARS = 16 * 1024
"""A longer text is not read as JSON."""

_COLLECTIONS = 5
"""Times that errors are collected to mend one value: to find it, and for each candidate that it can have."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MAX_NUMBER_CHARS = 40
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_TYPE_RULES = frozenset({"type", "anyOf", "oneOf", "enum", "const"})
_MAX_SHOWN_CHARS = 64


class Mender:
    """Mends the arguments of one call, within a budget."""

    def __init__(self, validator: Validator, text: str, arguments: dict[str, Any], budget: Budget) -> None:
        """`arguments` are mended in place; `text` is their JSON."""
        self._validator = validator
        self._text = text
        self._arguments = arguments
        self._budget = budget

    def mend(self) -> tuple[Coercion, ...] | None:
        """Make values of another type of those that the schema wants otherwise. Returns what was done.

        A value is touched only if it is at fault as it stands and the mended one is not: text that is a number, a
        boolean or a JSON object or array becomes one, 0 and 1 booleans, an empty text null, and one value an array of
        it. None: not all is valid now. What could not be mended is left as it was, and so is all of large arguments.

        Raises:
            OverBudgetError: it takes more than the budget, which says so.
        """
        made: list[Coercion] = []
        while len(made) < self._repairs(len(made)):
            coercion = self._mend_one()
            if coercion is None:
                break
            made.append(coercion)
        return tuple(made) if made and self._validator.is_valid(self._arguments) else None

    def _repairs(self, done: int) -> int:
        """How many repairs may be made in all, as the arguments are now: text that is read as JSON has more values.

        Raises:
            OverBudgetError: more than this budget allows, which says so.
        """
        visits = self._validator.count_visits(self._arguments)
        if visits > MAX_VISITS:
            return 0
        collected = max(self._validator.copied_bytes(self._text, self._arguments) * _COLLECTIONS, 1)
        repairs = min(MAX_REPAIRS, MAX_COPIED_BYTES // collected)
        if self._budget.hands_over and done < repairs:
            budget = self._budget
            affordable = min(budget.error_visits // (visits * _COLLECTIONS), budget.copied_bytes // collected)
            if done >= affordable:
                raise OverBudgetError
        return repairs

    def _mend_one(self) -> Coercion | None:
        """Mend the first value that can be."""
        arguments, validator = self._arguments, self._validator
        for error in validator.errors(arguments):
            path = list(error.instance_path)
            if not path or error.kind.name not in _TYPE_RULES:
                continue
            parent, key = place(arguments, path)
            value = parent[key]
            for rule, candidate in _candidates(value):
                parent[key] = candidate
                if validator.count_visits(arguments) <= MAX_VISITS and not any(
                    each.instance_path[: len(path)] == path for each in validator.errors(arguments)
                ):
                    return Coercion(pointer(path), rule, f"{_shown(value)} was taken as {_named(candidate)}")
            parent[key] = value
        return None


def unwrapped(text: str) -> str:
    """The text of an object that was written as JSON text of JSON text; any other text as it is."""
    if not text.lstrip().startswith('"') or len(text) > MAX_JSON_CHARS:
        return text
    try:
        inner = parse(text)
    except JsonError:
        return text
    return inner if isinstance(inner, str) and inner.lstrip().startswith("{") else text


UNWRAPPED = Coercion("", "object", "the text of a JSON object was taken as that object")
"""What `unwrapped` has done."""


def _candidates(value: object) -> Iterator[tuple[str, Any]]:
    """What a value may have meant, the narrowest first, each with the rule's name. An explicit null means null."""
    if isinstance(value, str):
        yield from _of_text(value)
    elif isinstance(value, int) and not isinstance(value, bool) and value in {0, 1}:
        yield "boolean", bool(value)
    if value is None or isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("[")):
        return  # a text that begins like an array is an array with a fault, or one that is too long
    yield "array", [value]
    if isinstance(value, str):
        for _, inner in _of_text(value):
            if isinstance(inner, int | float):
                yield "array", [inner]
                return


def _of_text(value: str) -> Iterator[tuple[str, Any]]:
    text = value.strip()
    if not text:
        yield "null", None
    elif text in _BOOLEANS:
        yield "boolean", _BOOLEANS[text]
    elif text[0] in "{[":
        if len(text) <= MAX_JSON_CHARS:
            try:
                parse(text)
            except JsonError:
                return
            yield "object" if text[0] == "{" else "array", parse_exact(text)
    elif len(value) <= _MAX_NUMBER_CHARS and _NUMBER.fullmatch(text):
        number = float(text)
        if text.lstrip("-").isdigit():
            yield "number", int(text)
        elif number.is_integer() and abs(number) <= 2**53:
            yield "number", int(number)
        if number - number == 0:  # neither infinite nor NaN
            yield "number", number


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A value for people and models: never a long one."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


def _named(value: Any) -> str:  # noqa: ANN401 - likewise
    if isinstance(value, list):
        return "an array" if len(value) != 1 else "an array of it"
    return "an object" if isinstance(value, dict) else _shown(value)


def place(value: Any, path: list[str | int]) -> tuple[Any, str | int]:  # noqa: ANN401 - any JSON value
    """The container that a path leads into, and the key or index there. jsonschema-rs makes a key "0" the number 0."""
    parent = value
    for step in path:
        key = step if isinstance(value, list) else str(step)
        parent, value = value, value[key]
    return parent, key
