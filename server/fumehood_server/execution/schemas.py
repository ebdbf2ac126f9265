"""JSON Schema validators, compiled once for each definition."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import NoReturn

import jsonschema_rs

_CACHE_SIZE = 4096
"""Compiled schemas kept. Reloads would make a table without a bound grow for ever."""

_BACKTRACK_LIMIT = 100_000
"""Steps of one `pattern`: it is the author's, the text is the model's, and together they must not hold the loop."""


class SchemaUnusableError(Exception):
    """A schema that the catalog let through can't be compiled. The plugin's author must mend it."""


class Validators:
    """Validators by their schema's text. Nothing is fetched: a reference that leads out of a schema is refused."""

    __slots__ = ("_compiled",)

    def __init__(self) -> None:
        self._compiled: OrderedDict[tuple[str, bool], jsonschema_rs.Draft202012Validator] = OrderedDict()

    def get(self, digest: str, schema_json: str, *, output: bool = False) -> jsonschema_rs.Draft202012Validator:
        """The validator of the definition with this digest, of its input schema or of its output schema.

        Raises:
            SchemaUnusableError: the schema can't be compiled.
        """
        key = (digest, output)
        found = self._compiled.get(key)
        if found is not None:
            return found
        try:
            compiled = jsonschema_rs.Draft202012Validator(
                json.loads(schema_json),
                retriever=_no_retrieval,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
            raise SchemaUnusableError(str(exc).splitlines()[0]) from exc
        self._compiled[key] = compiled
        if len(self._compiled) > _CACHE_SIZE:
            self._compiled.popitem(last=False)
        return compiled


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"external references are not fetched: {uri}")
