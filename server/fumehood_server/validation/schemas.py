"""JSON Schema validators, compiled once for each definition."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from fumehood_server.model.schema import compile_schema
from fumehood_server.model.schema_cost import error_counts, pattern_cost, visits
from fumehood_server.validation.budget import PROCESS, Budget, OverBudgetError
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
    pattern_states: int
    """Most that visit one value (`schema_cost.PatternCost`)."""

    def can_take(self, text: str, value: object, budget: Budget, *, times: int = 1) -> bool:
        """Whether validating `value`, whose JSON is `text`, so many times is within the budget."""
        chars = len(text) * times
        if chars * self.pattern_states > budget.pattern_steps:
            return False
        # There are fewer values than characters.
        return chars * self.peak <= budget.visits or self.count_visits(value) * times <= budget.visits

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

        def is_valid(made: str, filled: dict[str, Any], times: int) -> bool:
            if not self.can_take(made, filled, budget, times=times):
                raise OverBudgetError
            return self.is_valid(filled)

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
    """Validators by their schema's text, as far as a budget lets them be compiled."""

    __slots__ = ("_budget", "_compiled", "_most")

    def __init__(self, budget: Budget = PROCESS, most: int = 1024) -> None:
        """`most` are kept. Reloads would make a table without a bound grow for ever."""
        self._budget = budget
        self._most = most
        self._compiled: OrderedDict[tuple[str, bool], Validator | Exception] = OrderedDict()

    def knows(self, digest: str, *, output: bool = False) -> bool:
        """Whether `get` is done at once."""
        return (digest, output) in self._compiled

    def get(self, digest: str, schema_json: str, *, output: bool = False) -> Validator:
        """The validator of the definition with this digest, of its input schema or of its output schema.

        May be called on a thread: each step on the table is atomic.

        Raises:
            SchemaUnusableError: the schema can't be compiled.
            OverBudgetError: compiling or matching its patterns takes more than the budget, which says so.
        """
        key = (digest, output)
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = _make_validator(schema_json, self._budget, output=output)
            if len(self._compiled) > self._most:
                self._compiled.popitem(last=False)
        if isinstance(found, Exception):
            raise found.with_traceback(None)
        return found


def _make_validator(schema_json: str, budget: Budget, *, output: bool) -> Validator | Exception:
    """The validator of a schema, or why there is none. Nothing is fetched: references stay within it."""
    try:
        schema = json.loads(schema_json)
        counts, patterns = visits(schema), pattern_cost(schema)
        if budget.hands_over and patterns.all_states > budget.pattern_states:
            return OverBudgetError()
        compiled = compile_schema(schema, mask=_MASK)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        return SchemaUnusableError(str(exc).splitlines()[0])
    return Validator(
        compiled,
        counts,
        max(counts),
        error_counts(schema),
        None if output else make_normaliser(schema),
        patterns.visiting_states,
    )
