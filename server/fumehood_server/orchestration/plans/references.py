"""References in a plan's JSON: `{"$from": "step", "pointer": "/x"}` to an output, `{"$item": "/x"}` to an item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fumehood_server.model.json_pointer import unescaped

FROM, ITEM, VALUE = "$from", "$item", "$value"
"""Members that make an object a reference to a step, one to the item of a `map`, and a value that is taken as it is."""
MAX_POINTER_CHARS = 512

_MAX_INDEX_DIGITS = 9
_FORMS = {FROM: {FROM, "pointer", "default"}, ITEM: {ITEM, "default"}, VALUE: {VALUE}}


class TemplateError(ValueError):
    """An object looks like a reference and is none. `problem` says why."""

    def __init__(self, problem: str) -> None:
        """Keep the reason."""
        super().__init__(problem)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A value of another step's output, or of the item that a `map` is at."""

    step: str | None
    """None: the item."""
    pointer: str = ""
    """JSON pointer (RFC 6901)."""
    has_default: bool = False
    """Whether `default` stands in where there is no such value, or the step was skipped."""
    default: Any = None


def read_reference(value: dict[str, Any]) -> Reference | None:
    """The reference that an object is. None: it is a plain object, or a `$value`.

    Raises:
        TemplateError: it has a member of a reference and others beside it, or a wrong one.
    """
    marks = [mark for mark in _FORMS if mark in value]
    if not marks:
        return None
    mark = marks[0]
    others = value.keys() - _FORMS[mark]
    if others:
        raise TemplateError(f'an object with "{mark}" has nothing else but {_named(mark)}')
    if mark == VALUE:
        return None
    pointer = value[ITEM] if mark == ITEM else value.get("pointer", "")
    step = None if mark == ITEM else value[FROM]
    if step is not None and not isinstance(step, str):
        raise TemplateError(f'"{FROM}" is the name of a step')
    if not isinstance(pointer, str) or len(pointer) > MAX_POINTER_CHARS or (pointer and not pointer.startswith("/")):
        raise TemplateError(f'the pointer is text that is empty or begins with "/", of {MAX_POINTER_CHARS} characters')
    return Reference(step=step, pointer=pointer, has_default="default" in value, default=value.get("default"))


def references_in(template: Any) -> Iterator[Reference]:  # noqa: ANN401 - any JSON value
    """Every reference in JSON, in no particular order. What stands under `$value` is not looked at.

    Raises:
        TemplateError: there is an object that is nearly one.
    """
    todo = [template]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            found = read_reference(value)
            if found is not None:
                yield found
            elif VALUE not in value:
                todo += value.values()
        elif isinstance(value, list | tuple):
            todo += value


def find_value(document: Any, pointer: str) -> tuple[bool, Any]:  # noqa: ANN401 - any JSON value
    """Whether a pointer (RFC 6901) leads to a value, and which."""
    value = document
    for step in pointer.split("/")[1:]:
        part = unescaped(step)
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _is_index(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, None
    return True, value


def _is_index(part: str) -> bool:
    is_number = part.isascii() and part.isdigit() and len(part) <= _MAX_INDEX_DIGITS
    return is_number and (part == "0" or not part.startswith("0"))


def _named(mark: str) -> str:
    return ", ".join(f'"{each}"' for each in sorted(_FORMS[mark] - {mark})) or "that"
