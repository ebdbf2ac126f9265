"""Explains JSON Schema errors: one fault a place, and of `anyOf` and `oneOf` the fault in the branch that fits best."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from fumehood_server.model.json_pointer import escaped
from fumehood_server.model.schema import MASK

_MAX_MESSAGE = 300
_MAX_NAMED = 64
"""Choices that one message names. It is cut anyway."""

_NAME_RULES = frozenset({"required", "additionalProperties", "unevaluatedProperties"})

_Path = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one place of a document."""

    path: tuple[str | int, ...]
    rule: str
    """The schema's keyword."""
    message: str
    choices: tuple[Any, ...] = ()
    """Of `enum`, `const` and `type`: what would have been taken."""

    def to_json(self) -> dict[str, str]:
        """As the details of an error hold it."""
        return fault_json(pointer(self.path), self.rule, self.message)


def explain(
    errors: Iterable[ValidationError], *, unknown: str, limit: int, at_names: bool = True
) -> list[dict[str, str]]:
    """At most `limit` faults. A place that breaks several rules is named with the first.

    `unknown` says what a property is not that the schema doesn't know, such as "an argument of this tool". Without
    `at_names`, a rule about names points at the object around them.
    """
    found: dict[tuple[str | int, ...], Fault] = {}
    for error in errors:
        for fault in _faults(error, unknown):
            path = fault.path if at_names or fault.rule not in _NAME_RULES else fault.path[:-1]
            found.setdefault(path, replace(fault, path=path))
        if len(found) >= limit:
            break
    return [fault.to_json() for fault in list(found.values())[:limit]]


def fault_json(path: str, rule: str, message: str) -> dict[str, str]:
    """One fault. `path` is a JSON pointer."""
    return {"pointer": _cut(path), "rule": rule, "message": _cut(message)}


def pointer(path: _Path) -> str:
    """The path as a JSON pointer (RFC 6901)."""
    return "".join("/" + escaped(str(step)) for step in path)


def _faults(error: ValidationError, unknown: str) -> list[Fault]:  # noqa: PLR0911 - one return a kind of error
    """The faults of one error; a rule about properties points at each of them, not at the object around them."""
    path, kind = tuple(error.instance_path), error.kind
    match kind:
        case ValidationErrorKind.Required():
            name = str(kind.property)
            return [Fault((*path, name), kind.name, f'"{name}" is required and missing')]
        case ValidationErrorKind.AdditionalProperties() | ValidationErrorKind.UnevaluatedProperties():
            return [Fault((*path, name), kind.name, f'"{name}" is not {unknown}') for name in kind.unexpected]
        case ValidationErrorKind.Enum():
            # The library names three of them and counts the rest; a model needs to know what it may choose from.
            return [_choice(path, kind.name, kind.options)]
        case ValidationErrorKind.Constant():
            return [_choice(path, kind.name, [kind.expected_value])]
        case ValidationErrorKind.Type():
            return [Fault(path, kind.name, error.message, tuple(kind.types))]
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            return _in_branches(
                path, kind.name, [[each for one in branch for each in _faults(one, unknown)] for branch in kind.context]
            )
        case ValidationErrorKind.OneOfMultipleValid():
            return [Fault(path, kind.name, "fits more than one of the alternatives, and must fit exactly one")]
        case ValidationErrorKind.PropertyNames():
            return [Fault(path, kind.name, _of_a_name(_faults(kind.error, unknown)[0]))]
    return [Fault(path, kind.name, error.message)]


def _of_a_name(fault: Fault) -> str:
    """What is wrong with a property's name, without the name: the library masks values, but no names."""
    if fault.message.startswith(f"{MASK} "):
        return f"a property's name{fault.message.removeprefix(MASK)}"
    if fault.message.startswith(("must ", "fits ")):
        return f"a property's name {fault.message}"
    return f'a property\'s name breaks the rule "{fault.rule}"'


def _choice(path: tuple[str | int, ...], rule: str, choices: Sequence[Any]) -> Fault:
    named = json.dumps(list(choices[:_MAX_NAMED]), ensure_ascii=False)[1:-1]
    message = f"must be {named}" if len(choices) == 1 else f"must be one of {named}"
    return Fault(path, rule, message, tuple(choices))


def _in_branches(path: tuple[str | int, ...], rule: str, branches: list[list[Fault]]) -> list[Fault]:
    """The faults of the branch that fits best; what the branches take where none fits better than the others."""
    branches = [branch for branch in branches if branch]
    meant = [branch for branch in branches if all(fault.path != path for fault in branch)]
    if not meant:
        return [_at_the_value(path, rule, [fault for branch in branches for fault in branch if fault.path == path])]
    best = min(map(_distance, meant))
    nearest = [branch for branch in meant if _distance(branch) == best]
    told = (_common_tag(nearest) or _any_name(path, rule, nearest)) if len(nearest) > 1 else None
    return nearest[0] if told is None else [told]


def _distance(branch: list[Fault]) -> tuple[int, int]:
    """How far a value is from a branch: first the constants that it should have, which tell a union's members apart."""
    return sum(fault.rule == "const" for fault in branch), len(branch)


def _common_tag(branches: list[list[Fault]]) -> Fault | None:
    """The place at which every branch wants one of its own constants, with all of them."""
    places = [{fault.path: fault for fault in branch if fault.rule in ("const", "enum")} for branch in branches]
    for path in places[0]:
        if all(path in place for place in places):
            choices = {json.dumps(each): each for place in places for each in place[path].choices}
            return _choice(path, "enum", list(choices.values()))
    return None


def _any_name(path: tuple[str | int, ...], rule: str, branches: list[list[Fault]]) -> Fault | None:
    """The names of which each branch lacks just one."""
    if not all(len(branch) == 1 and branch[0].rule == "required" for branch in branches):
        return None
    names = dict.fromkeys(f'"{branch[0].path[-1]}"' for branch in branches)
    return Fault(path, rule, f"{' or '.join(names)} is required and missing")


def _at_the_value(path: tuple[str | int, ...], rule: str, faults: list[Fault]) -> Fault:
    """The value itself fits no branch: what they take, where all of them say so by types and choices."""
    types = [name for fault in faults if fault.rule == "type" for name in fault.choices]
    choices = {json.dumps(each): each for fault in faults if fault.rule in ("enum", "const") for each in fault.choices}
    others = [fault for fault in faults if fault.rule not in ("type", "enum", "const")]
    if others:
        # It is of the right type for this branch, and breaks another rule of it.
        return others[0]
    words = [f"of type {' or '.join(dict.fromkeys(types))}"] if types else []
    if choices:
        words.append(_choice(path, rule, list(choices.values())).message.removeprefix("must be "))
    return Fault(path, rule, f"must be {', or '.join(words)}" if words else "fits none of the alternatives")


def _cut(text: str) -> str:
    """Both ends of a long text: names of keys can be long, and so can lists of choices."""
    if len(text) <= _MAX_MESSAGE:
        return text
    half = (_MAX_MESSAGE - 3) // 2
    return f"{text[:half]}…{text[-half:]}"
