"""JSON Schema validators, compiled once for each definition."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs

from fumehood_server.execution.strict_json import measure
from fumehood_server.model.schema_cost import visits

_CACHE_SIZE = 4096
"""Compiled schemas kept. Reloads would make a table without a bound grow for ever."""

_BACKTRACK_LIMIT = 100_000
"""Steps of one `pattern`: it is the author's, the text is the model's, and together they must not hold the loop."""


MAX_VISITS = 20_000_000
"""Looks of a schema at values, for one document: half a second, and far more than documents at their caps need."""

MAX_ERROR_VISITS = 10_000
"""The same, where every error is collected: each costs some 12 µs, and all are made before the first can be read."""


class SchemaUnusableError(Exception):
    """A schema that the catalog let through can't be compiled. The plugin's author must mend it."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A compiled schema, and what asking it can cost."""

    compiled: jsonschema_rs.Draft202012Validator
    visits: tuple[int, ...]
    peak: int
    """The highest of `visits`."""

    def can_take(self, text: str, value: object) -> bool:
        """Whether validating `value`, whose JSON is `text`, holds nobody up."""
        # There are fewer values than characters.
        return len(text) * self.peak <= MAX_VISITS or self.affords(value, MAX_VISITS)

    def affords(self, value: object, budget: int) -> bool:
        """Whether the schema looks at most `budget` times at all values of the document together."""
        size = measure(value)
        return size.values * max(self.visits[: size.depth + 1]) <= budget

    def is_valid(self, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        """Whether the value fits."""
        return self.compiled.is_valid(value)

    def can_explain(self, value: object) -> bool:
        """Whether finding out what is wrong with an invalid value holds nobody up."""
        return self.affords(value, MAX_ERROR_VISITS)

    def errors(self, value: Any) -> Iterable[jsonschema_rs.ValidationError]:  # noqa: ANN401 - any JSON value
        """Everything that is wrong with a value. Ask `can_explain` first: even the first error of `anyOf` holds all."""
        return self.compiled.iter_errors(value)


class Validators:
    """Validators by their schema's text. Nothing is fetched: a reference that leads out of a schema is refused."""

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
            compiled = jsonschema_rs.Draft202012Validator(
                schema,
                retriever=_no_retrieval,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
            raise SchemaUnusableError(str(exc).splitlines()[0]) from exc
        made = self._compiled[key] = Validator(compiled, counts, max(counts))
        if len(self._compiled) > _CACHE_SIZE:
            self._compiled.popitem(last=False)
        return made


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"external references are not fetched: {uri}")
