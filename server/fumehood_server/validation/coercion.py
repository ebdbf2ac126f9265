"""Mends the mistakes that models make in the types of arguments, where nothing else can have been meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fumehood_server.validation.budget import Budget, OverBudgetError
from fumehood_server.validation.schemas import Validator

MAX_REPAIRS = 16
"""Values mended in one call. Each costs a validation or more; arguments with more mistakes are better sent again."""

MAX_VISITS = 1_000
"""Looks at values (`Validator.affords`) in arguments that are mended at all: each repair collects all errors anew."""

_COLLECTIONS = 3
"""Times that errors are collected to mend one value: to find it, and for each of two candidates."""

MAX_COPIED_BYTES = 64 * 1024 * 1024
"""Copies of values in the errors of all repairs together."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MAX_NUMBER_CHARS = 40
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_TYPE_RULES = frozenset({"type", "anyOf", "oneOf", "enum", "const"})


def coerce(validator: Validator, text: str, arguments: dict[str, Any], budget: Budget) -> bool:
    """Mend `arguments` in place: text that is a number or a boolean becomes one where the schema asks for that.

    A value is touched only if it is at fault as it stands and the mended one is not. Returns whether all is valid now;
    what could not be mended is left as it was, and so is all of large arguments. `text` is their JSON.

    Raises:
        OverBudgetError: it takes more than `budget`, which says so.
    """
    visits = validator.count_visits(arguments)
    if visits > MAX_VISITS:
        return False
    collected = validator.copied_bytes(text, arguments) * _COLLECTIONS
    repairs = min(MAX_REPAIRS, MAX_COPIED_BYTES // max(collected, 1))
    affordable = repairs
    if budget.hands_over:
        affordable = min(budget.error_visits // (visits * _COLLECTIONS), budget.copied_bytes // max(collected, 1))
    for done in range(repairs):
        if done >= affordable:
            raise OverBudgetError
        if not _mend_one(validator, arguments):
            break
    return validator.is_valid(arguments)


def _mend_one(validator: Validator, arguments: dict[str, Any]) -> bool:
    """Mend the first value that can be. Returns whether one was."""
    for error in validator.errors(arguments):
        path = list(error.instance_path)
        if not path or error.kind.name not in _TYPE_RULES:
            continue
        parent = _walk(arguments, path[:-1])
        value = parent[path[-1]]
        for candidate in _candidates(value):
            parent[path[-1]] = candidate
            if not any(each.instance_path[: len(path)] == path for each in validator.errors(arguments)):
                return True
        parent[path[-1]] = value
    return False


def _candidates(value: object) -> Iterator[int | float | bool]:
    """What the text may have meant, the narrowest first."""
    if not isinstance(value, str) or len(value) > _MAX_NUMBER_CHARS:
        return
    text = value.strip()
    if text in _BOOLEANS:
        yield _BOOLEANS[text]
    elif _NUMBER.fullmatch(text):
        number = float(text)
        if text.lstrip("-").isdigit():
            yield int(text)
        elif number.is_integer() and abs(number) <= 2**53:
            yield int(number)
        if number - number == 0:  # neither infinite nor NaN
            yield number


def _walk(value: Any, path: list[str | int]) -> Any:  # noqa: ANN401 - any JSON value
    for step in path:
        value = value[step]
    return value
