"""Makes arguments and prompts of templates: references become what they refer to, within a bound on all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.plans.long_json import TooLongError, dump, load, made
from fumehood_server.orchestration.plans.references import (
    FROM,
    ITEM,
    VALUE,
    Reference,
    find_value,
    read_reference,
    references_in,
)

_Made = TypeVar("_Made")

MAX_RENDERED_CHARS = 1024 * 1024
"""Of one step's arguments or prompt: as many as the executor takes of arguments. References multiply what they name."""

NO_ITEM = object()
"""Outside of a `map`."""


class Renderer:
    """Fills templates from the outputs of steps, and from the item that a `map` is at."""

    __slots__ = ("_item", "_left", "_outputs", "_pieces")

    def __init__(self, outputs: Mapping[str, Any], item: Any = NO_ITEM) -> None:  # noqa: ANN401 - any JSON value
        """`outputs` by the steps' names; a step that is not there was skipped."""
        self._outputs = outputs
        self._item = item
        self._pieces: list[str] = []
        self._left = MAX_RENDERED_CHARS

    async def made(self, make: Callable[[Any], _Made], template: Any) -> _Made:  # noqa: ANN401 - any JSON value
        """`make(template)`, which is to be a method of this renderer: in a thread, where it makes much of it."""
        return await made(make, template, of=[template, *self._referred_to(template)])

    def json_text(self, template: Any) -> str:  # noqa: ANN401 - any JSON value
        """The template's JSON.

        Raises:
            RunFailedError: ORCHESTRATION_STEP_MISMATCH, or it is too large (TOOL_RESOURCE_EXHAUSTED).
        """
        self._begin()
        self._render(template)
        return "".join(self._pieces)

    def whole(self, template: Any) -> Any:  # noqa: ANN401 - any JSON value
        """What the template comes to: the value itself, where it is a reference to one.

        Raises:
            RunFailedError: as `json_text`.
        """
        if isinstance(template, dict) and read_reference(template) is not None:
            return self.value(template)
        return load(self.json_text(template))

    def object_text(self, template: Any) -> str:  # noqa: ANN401 - any JSON value
        """The same, of a template that has to come to an object.

        Raises:
            RunFailedError: as `json_text`.
        """
        text = self.json_text(template)
        if not text.startswith("{"):
            raise mismatch("the arguments come to no object", template)
        return text

    def prompt(self, parts: Sequence[Any]) -> str:
        """Parts one after the other: texts as they are, other values as JSON.

        Raises:
            RunFailedError: as `json_text`.
        """
        self._begin()
        for part in parts:
            value = self.value(part) if isinstance(part, dict) else part
            if isinstance(value, str):
                self._add(value)
            else:
                self._dump(value)
        return "".join(self._pieces)

    def value(self, template: Any) -> Any:  # noqa: ANN401 - any JSON value
        """What a reference leads to; JSON that is no reference is itself.

        Raises:
            RunFailedError: ORCHESTRATION_STEP_MISMATCH.
        """
        reference = read_reference(template) if isinstance(template, dict) else None
        return template if reference is None else self._resolve(reference)

    def _referred_to(self, template: Any) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
        for reference in references_in(template):
            with suppress(RunFailedError):
                yield self._resolve(reference)

    def _begin(self) -> None:
        self._pieces, self._left = [], MAX_RENDERED_CHARS

    def _add(self, piece: str) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise too_large("a step's input", MAX_RENDERED_CHARS)
        self._pieces.append(piece)

    def _dump(self, value: Any) -> None:  # noqa: ANN401 - any JSON value
        try:
            piece = dump(value, self._left)
        except TooLongError:
            raise too_large("a step's input", MAX_RENDERED_CHARS) from None
        self._add(piece)

    def _render(self, template: Any) -> None:  # noqa: ANN401 - any JSON value
        # It recurses as deep as the plan's own JSON, which `parse` bounds.
        if isinstance(template, dict):
            reference = read_reference(template)
            if reference is not None:
                self._dump(self._resolve(reference))
            elif VALUE in template:
                self._dump(template[VALUE])
            else:
                self._members(template)
        elif isinstance(template, list | tuple):
            self._add("[")
            for index, each in enumerate(template):
                self._add("," if index else "")
                self._render(each)
            self._add("]")
        else:
            self._dump(template)

    def _members(self, template: Mapping[str, Any]) -> None:
        self._add("{")
        for index, (name, each) in enumerate(template.items()):
            self._add(("," if index else "") + dump(name) + ":")
            self._render(each)
        self._add("}")

    def _resolve(self, reference: Reference) -> Any:  # noqa: ANN401 - any JSON value
        if reference.step is None:
            document, is_there = self._item, self._item is not NO_ITEM
        else:
            document, is_there = self._outputs.get(reference.step), reference.step in self._outputs
        found, value = find_value(document, reference.pointer) if is_there else (False, None)
        if found:
            return value
        if reference.has_default:
            return reference.default
        raise mismatch("there is no such value", reference_json(reference))


def reference_json(reference: Reference) -> dict[str, str]:
    """As it stands in the plan, without its default."""
    if reference.step is None:
        return {ITEM: reference.pointer}
    return {FROM: reference.step, "pointer": reference.pointer}


def mismatch(message: str, at: Any = None) -> RunFailedError:  # noqa: ANN401 - any JSON value
    """A step got what it can't take. `at` is the place in the plan."""
    where = dump(at)[:200] if at is not None else ""
    details = {} if at is None else {"reference": where}
    return failed(Code.ORCHESTRATION_STEP_MISMATCH, f"{message}: {where}" if where else message, details=details)


def too_large(what: str, limit: int) -> RunFailedError:
    """A bound on what steps hand on is reached."""
    return failed(
        Code.TOOL_RESOURCE_EXHAUSTED,
        f"{what} is larger than {limit} characters",
        details={"limit": "plan_values", "limit_characters": limit},
    )
