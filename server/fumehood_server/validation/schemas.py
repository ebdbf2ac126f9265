"""JSON Schema validators, compiled once for each definition."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from fumehood_server.model.schema import compile_schema
from fumehood_server.model.schema_cost import error_counts, visits
from fumehood_server.validation.budget import Budget, OverBudgetError
from fumehood_server.validation.normaliser import Normaliser, make_normaliser
from fumehood_server.validation.strict_json import measure

_MASK = "the value"
"""What messages say in place of a value: it is as long as a caller likes, and can be a secret."""


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

    def can_take(self, text: str, value: object, budget: Budget) -> bool:
        """Whether validating `value`, whose JSON is `text`, is within the budget."""
        # There are fewer values than characters.
        return len(text) * self.peak <= budget.visits or self.count_visits(value) <= budget.visits

    def count_visits(self, value: object) -> int:
        """How often the schema looks at most at all values of the document together."""
        size = measure(value)
        return size.values * max(self.visits[: size.depth + 1])

    def normalise(self, text: str, value: dict[str, Any], budget: Budget) -> str:
        """The text of a valid `value` as the plugin gets it (`Normaliser.normalise`). Changes `value`.

        Raises:
            OverBudgetError: it takes more than `budget`, which says so.
        """
        if self.normaliser is None:
            return text

        def is_valid(made: str, filled: dict[str, Any]) -> bool:
            if self.can_take(made, filled, budget):
                return self.is_valid(filled)
            if budget.hands_over:
                raise OverBudgetError
            return False

        return self.normaliser.normalise(text, value, is_valid, budget)

    def is_valid(self, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        """Whether the value fits."""
        return self.compiled.is_valid(value)

    def can_explain(self, text: str, value: object, budget: Budget) -> bool:
        """Whether finding out what is wrong with an invalid `value`, whose JSON is `text`, is within the budget."""
        return self.count_visits(value) <= budget.error_visits and self.copied_bytes(text, value) <= budget.copied_bytes

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
    """Validators by their schema's text. Nothing is fetched: a reference that leads out of a schema is refused."""

    __slots__ = ("_compiled", "_most")

    def __init__(self, most: int = 1024) -> None:
        """`most` are kept. Reloads would make a table without a bound grow for ever."""
        self._most = most
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
        if len(self._compiled) > self._most:
            self._compiled.popitem(last=False)
        return made
