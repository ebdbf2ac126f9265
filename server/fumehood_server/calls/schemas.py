"""JSON Schema validators, compiled once for each definition."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from fumehood_server.calls.normaliser import Normaliser, make_normaliser
from fumehood_server.calls.strict_json import measure
from fumehood_server.model.schema import compile_schema
from fumehood_server.model.schema_cost import error_counts, visits

_CACHE_SIZE = 4096
"""Compiled schemas kept. Reloads would make a table without a bound grow for ever."""

MAX_VISITS = 20_000_000
"""Looks of a schema at values, for one document: half a second, and far more than documents at their caps need."""

MAX_ERROR_VISITS = 10_000
"""The same, where every error is collected: each costs some 12 µs, and all are made before the first can be read."""

_MASK = "the value"
"""What messages say in place of a value: it is as long as a caller likes, and can be a secret."""

MAX_COPIED_BYTES = 16 * 1024 * 1024
"""Copies of values in the errors of one document: 30 ms, and as many bytes of memory. Every error holds its value."""


class SchemaUnusableError(Exception):
    """A schema that the catalog let through can't be compiled. The plugin's author must mend it."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A compiled schema, and what asking it can cost."""

    compiled: jsonschema_rs.Draft202012Validator
    visits: tuple[int, ...]
    peak: int
    """The highest of `visits`."""
    error_counts: tuple[int, ...]
    """How many errors there can be about one value, by its depth (`schema_cost.error_counts`)."""
    normaliser: Normaliser | None
    """For documents that are valid. None where there is nothing to normalise, and for output."""

    def can_take(self, text: str, value: object) -> bool:
        """Whether validating `value`, whose JSON is `text`, holds nobody up."""
        # There are fewer values than characters.
        return len(text) * self.peak <= MAX_VISITS or self.affords(value, MAX_VISITS)

    def affords(self, value: object, budget: int) -> bool:
        """Whether the schema looks at most `budget` times at all values of the document together."""
        size = measure(value)
        return size.values * max(self.visits[: size.depth + 1]) <= budget

    def normalise(self, text: str, value: dict[str, Any]) -> str:
        """The text of a valid `value` as the plugin gets it (`Normaliser.normalise`). Changes `value`."""
        if self.normaliser is None:
            return text
        return self.normaliser.normalise(
            text, value, lambda made, filled: self.can_take(made, filled) and self.is_valid(filled)
        )

    def is_valid(self, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        """Whether the value fits."""
        return self.compiled.is_valid(value)

    def can_explain(self, text: str, value: object) -> bool:
        """Whether finding out what is wrong with an invalid `value`, whose JSON is `text`, holds nobody up."""
        return self.affords(value, MAX_ERROR_VISITS) and self.copied_bytes(text, value) <= MAX_COPIED_BYTES

    def copied_bytes(self, text: str, value: object) -> int:
        """At most so many bytes of the document are copied into its errors."""
        depths = measure(value).depth + 1
        counts = self.error_counts[:depths]
        # The values at one depth are together no longer than the text.
        errors = sum(counts) + counts[-1] * (depths - len(counts))
        return len(text.encode()) * errors

    def errors(self, value: Any) -> Iterable[jsonschema_rs.ValidationError]:  # noqa: ANN401 - any JSON value
        """Everything that is wrong with a value. Ask `can_explain` first: even the first error of `anyOf` holds all."""
        return self.compiled.iter_errors(value)


class Validators:
    """Validators by their schema's text. Nothing is fetched: a reference that leads out of a schema is refused.

    For several threads: each step on the table is atomic, and of two that compile one schema, one stays.
    """

    __slots__ = ("_compiled",)

    def __init__(self) -> None:
        self._compiled: OrderedDict[tuple[str, bool], Validator] = OrderedDict()

    def get(self, digest: str, schema_json: str, *, output: bool = False) -> Validator:
        """The validator of the definition with this digest, of its input schema or of its output schema.

        Raises:
            SchemaUnusableError: the schema can't be compiled.
        """
        key = (digest, output)
        found = self._compiled.get(key)
        if found is not None:
            return found
        try:
            schema = json.loads(schema_json)
            counts = visits(schema)
            compiled = compile_schema(schema, mask=_MASK)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
            raise SchemaUnusableError(str(exc).splitlines()[0]) from exc
        made = self._compiled[key] = Validator(
            compiled, counts, max(counts), error_counts(schema), None if output else make_normaliser(schema)
        )
        if len(self._compiled) > _CACHE_SIZE:
            self._compiled.popitem(last=False)
        return made
