"""JSON Schema validators, compiled once for each definition."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from fumehood_server.model.schema import MASK, compile_schema
from fumehood_server.model.schema_cost import CostlyPatternsError, SchemaCost, schema_cost
from fumehood_server.validation.budget import PROCESS, Budget, OverBudgetError
from fumehood_server.validation.normaliser import Normaliser, make_normaliser
from fumehood_server.validation.strict_json import Size, measure


class SchemaUnusableError(Exception):
    """A schema that the catalog let through can't be compiled, or not used. The plugin's author must mend it."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A compiled schema, and what asking it can cost."""

    compiled: jsonschema_rs.Draft202012Validator
    cost: SchemaCost
    normaliser: Normaliser | None
    """For documents that are valid. None where there is nothing to normalise, and for output."""

    def can_take(self, text: str, value: object, budget: Budget, *, times: int = 1) -> bool:
        """Whether validating `value`, whose JSON is `text`, so many times is within the budget."""
        chars = len(text) * times
        if chars * self.cost.visiting_states > budget.pattern_steps:
            return False
        # There are fewer values than characters.
        if chars * max(self.cost.visits) <= budget.visits and chars * self.cost.multiples <= budget.multiples:
            return True
        size = measure(value)
        return (
            self._visits(size) * times <= budget.visits
            and size.values * self.cost.multiples * times <= budget.multiples
        )

    def count_visits(self, value: object) -> int:
        """How often the schema looks at most at all values of the document together."""
        return self._visits(measure(value))

    def _visits(self, size: Size) -> int:
        return size.values * max(self.cost.visits[: size.depth + 1])

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
        """Whether the value fits.

        Raises:
            SchemaUnusableError: the library that was given the schema can't use it on this value.
        """
        try:
            return self.compiled.is_valid(value)
        except RuntimeError:  # a panic of it, as some schemas with `unevaluatedProperties` in references cause
            # Not its text: that of a panic over a string holds the string.
            raise SchemaUnusableError("the validator failed on it") from None

    def can_explain(self, text: str, value: object, budget: Budget) -> bool:
        """Whether finding out what is wrong with an invalid `value`, whose JSON is `text`, is within the budget."""
        return self.count_visits(value) <= budget.error_visits and self.copied_bytes(text, value) <= budget.copied_bytes

    def copied_bytes(self, text: str, value: object) -> int:
        """At most so many bytes of the document are copied into its errors."""
        depths = measure(value).depth + 1
        counts = self.cost.error_counts[:depths]
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
    if budget.hands_over and not budget.takes_schema(schema_json):
        return OverBudgetError()
    try:
        schema = json.loads(schema_json)
        cost = schema_cost(schema, most_states=budget.pattern_states, steps=budget.counting_steps)
        compiled = compile_schema(schema, mask=MASK)
    except CostlyPatternsError as exc:
        return OverBudgetError() if budget.hands_over else SchemaUnusableError(exc.problem)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        return SchemaUnusableError(str(exc).splitlines()[0])
    return Validator(compiled, cost, None if output else make_normaliser(schema))
