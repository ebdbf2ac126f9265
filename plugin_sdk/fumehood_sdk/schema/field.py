"""Constraints and descriptions of a tool's parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NUMBER_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
"""Constraints of numbers, and the JSON Schema keywords that say the same."""
STRING_KEYWORDS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
ARRAY_KEYWORDS = {"min_length": "minItems", "max_length": "maxItems"}
OBJECT_KEYWORDS = {"min_length": "minProperties", "max_length": "maxProperties"}
NOTES = ("title", "description", "examples")
"""What says something to the reader of a schema and constrains nothing."""


class Field:
    """What `Annotated` says of a value: `Annotated[int, Field(ge=1, le=10, description="How many")]`.

    It says what pydantic's own `Field` does, without the time that importing pydantic takes; either can be used, and
    this one works inside pydantic's models as well.
    """

    __slots__ = ("arguments",)

    def __init__(
        self,
        *,
        description: str | None = None,
        title: str | None = None,
        examples: list[Any] | None = None,
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
    ) -> None:
        """Keep what is said.

        Args:
            description: What the value is, for the reader of the schema. Wins over the docstring's `Args:`.
            title: A short name for people.
            examples: Values that are valid.
            ge: The number is at least this.
            gt: The number is greater than this.
            le: The number is at most this.
            lt: The number is less than this.
            multiple_of: The number is a multiple of this.
            min_length: Fewest characters, items or entries.
            max_length: Most characters, items or entries.
            pattern: A regular expression that is found in the string; anchor it with ^ and $ to match the whole. No
                look-around and no back references: its time is linear.
        """
        given = {
            "title": title,
            "description": description,
            "examples": examples,
            "ge": ge,
            "gt": gt,
            "le": le,
            "lt": lt,
            "multiple_of": multiple_of,
            "min_length": min_length,
            "max_length": max_length,
            "pattern": pattern,
        }
        self.arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

    @property
    def __is_annotated_types_grouped_metadata__(self) -> bool:
        """Marks this for pydantic as a group of constraints, which it then takes from `__iter__`."""
        return True

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field as PydanticField  # noqa: PLC0415 - only pydantic asks, so it is imported already

        yield PydanticField(**self.arguments)

    def __repr__(self) -> str:
        return f"Field({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def arguments_of(metadata: object) -> dict[str, Any] | None:
    """What an object inside `Annotated` says, as arguments of `Field`. None when it says more than `Field` can.

    Understands `Field` itself, and the constraints of `annotated_types` without importing them.
    """
    if isinstance(metadata, Field):
        return metadata.arguments
    kind = type(metadata)
    if kind.__module__ == "annotated_types":
        name = _ANNOTATED_TYPES.get(kind.__name__)
        return {name: getattr(metadata, name)} if name else None
    return None


_ANNOTATED_TYPES = {
    "Ge": "ge",
    "Gt": "gt",
    "Le": "le",
    "Lt": "lt",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}
