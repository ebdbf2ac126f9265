"""JSON Schemas of tools (2020-12): parsed as strict JSON, checked, compiled, made canonical (RFC 8785)."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import OrderedDict
from typing import Any, NoReturn

import jsonschema_rs
import orjson
import rfc8785

from fumehood_server.model.json_keys import first_duplicate
from fumehood_server.model.pattern_cost import building_states, find_patterns
from fumehood_server.model.schema_cost import LEAST_LEVELS, may_be_costly, visits
from fumehood_server.model.schema_graph import DIALECTS, SchemaCostError

MASK = "the value"
"""What messages about a value say in its place: it is as long as a caller likes, and can be a secret."""

SCHEMA_LIMIT_BYTES = 256 * 1024
_MAX_DEPTH = 64
"""Nesting of a schema. Parsers of JSON and of schemas, ours and callers', recurse."""

_MAX_VISITS = 10_000
"""Most subschemas that may visit one value, down to a depth of 4. Every document has such values; deeper ones are
counted for each call."""

MAX_PATTERN_STATES = 20_000
"""Of all patterns of a schema. Building one takes the interpreter from every other thread, for some 20 ms at most."""

_MOST_REMEMBERED = 8_192
_checked: OrderedDict[bytes, None] = OrderedDict()
"""Digests of schemas that passed, by what they were held against, the newest last: a reload checks the same again."""

_MAX_WHOLE = 2**53 - 1
_MAX_KEY_SHOWN = 64
_MAX_PATTERN_SHOWN = 128


class SchemaError(ValueError):
    """A schema can't be used. `problem` says why, `hint` what to do (may be empty)."""

    def __init__(self, problem: str, hint: str = "") -> None:
        """Keep both."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class CostlyPatternsError(SchemaError):
    """The patterns of a schema take longer to build than is allowed where it was to be checked."""


def canonical_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """The value as canonical JSON (RFC 8785).

    Raises:
        SchemaError: it holds a number that has no canonical form.
    """
    if _is_plain(value):
        with contextlib.suppress(TypeError):  # a lone surrogate, or a key that is no string
            made = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            if made.isascii():
                return made.decode()
    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as exc:
        raise SchemaError(f"has no canonical JSON: {exc}", "whole numbers must lie within 2^53") from exc


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether it holds no number but whole ones that have a canonical form.

    Then orjson writes its ASCII as RFC 8785 does, ten times as fast as that RFC's library; the order of other keys and
    fractions differ.
    """
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            pending += each.values()
        elif isinstance(each, list):
            pending += each
        elif type(each) is int:
            if abs(each) > _MAX_WHOLE:
                return False
        elif not (each is None or isinstance(each, str | bool)):
            return False
    return True


def sha256_of(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """SHA-256 of the value's canonical JSON, as "sha256:" and 64 hex digits."""
    return "sha256:" + hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_schema(text: str) -> str:
    """A JSON Schema as `check_schema` returns it, of which nothing is checked but that it is a JSON object.

    Raises:
        SchemaError: it is none, or has no canonical form.
    """
    return canonical_json(_object_in(text))


def check_schema(text: str, *, arguments: bool, max_states: int = MAX_PATTERN_STATES) -> str:
    """Check a JSON Schema 2020-12 and return it as canonical JSON. With `arguments`, its top level must be an object.

    Nothing is fetched: a reference that leads out of the schema is refused, and so is one that leads nowhere. Before
    anything is built, its patterns are held against `max_states` (`building_states`).

    Raises:
        CostlyPatternsError: its patterns are over `max_states`.
        SchemaError: it can't be used.
    """
    schema = _object_in(text)
    if arguments and schema.get("type") != "object":
        raise SchemaError('must have "type": "object" at its top level', "arguments are one JSON object")
    dialect = schema.get("$schema")
    if dialect is not None and dialect not in DIALECTS:
        raise SchemaError(f'is of another dialect, "{dialect}"', "only JSON Schema 2020-12 is taken: remove $schema")
    made = canonical_json(schema)
    digest = hashlib.sha256(f"{max_states} {made}".encode()).digest()
    if digest not in _checked:
        _check_cost(schema, made, max_states)
        _checked[digest] = None
        if len(_checked) > _MOST_REMEMBERED:
            _checked.popitem(last=False)
    return made


def pattern_states(schema_json: str) -> int:
    """What building the patterns of a JSON Schema takes (`building_states`)."""
    return sum(map(building_states, find_patterns(json.loads(schema_json)))) if '"pattern' in schema_json else 0


def _check_cost(schema: dict[str, Any], made: str, max_states: int) -> None:
    """Compile it, where that and its use take no longer than is allowed. Raises as `check_schema`."""
    _check_patterns(schema, max_states)
    most_visits = _most_visits(schema) if len(made) > _MAX_VISITS or may_be_costly(made) else 0
    try:
        compile_schema(schema)
    except jsonschema_rs.ValidationError as exc:
        where = "/" + "/".join(str(part) for part in exc.instance_path) if exc.instance_path else "the schema"
        if isinstance(exc.kind, jsonschema_rs.ValidationErrorKind.Format) and exc.kind.format == "regex":
            raise SchemaError(
                f'has the pattern "{str(exc.instance)[:_MAX_PATTERN_SHOWN]}", which is no regular expression that can '
                f"be matched in linear time: {where[:_MAX_PATTERN_SHOWN]}",
                r"look-around ((?=…), (?!…), (?<=…), (?<!…)) and back-references (\1) are not taken: "
                "use several patterns under allOf, or check it in the tool",
            ) from exc
        if "Resource" in exc.message or "Retriev" in exc.message:
            raise SchemaError(
                f"refers out of itself: {exc.message}", "put it under $defs and refer to #/$defs/…"
            ) from exc
        raise SchemaError(f"is not valid JSON Schema 2020-12: {where}: {exc.message}") from exc
    except (jsonschema_rs.ReferencingError, ValueError) as exc:
        raise SchemaError(f"is not valid JSON Schema 2020-12: {exc}") from exc
    if most_visits > _MAX_VISITS:
        raise SchemaError(
            f"looks more than {_MAX_VISITS} times at one value",
            "refer to #/$defs/… or an anchor, to each from few places, and never to what refers back at the same value",
        )


def compile_schema(schema: dict[str, Any], *, mask: str | None = None) -> jsonschema_rs.Draft202012Validator:
    """The validator of a schema, as all schemas of tools are compiled.

    Patterns are matched by a linear engine (finite automata), which has neither look-around nor back-references: the
    pattern is the author's, the text a model's, and the event loop waits for both. With `mask`, messages have that in
    place of the values at fault.

    Raises:
        jsonschema_rs.ValidationError: it is no valid schema, or has a pattern that this engine can't match.
        jsonschema_rs.ReferencingError: it refers to what isn't in it.
    """
    return jsonschema_rs.Draft202012Validator(
        schema, retriever=_no_retrieval, mask=mask, pattern_options=jsonschema_rs.RegexOptions()
    )


def _check_patterns(schema: dict[str, Any], max_states: int) -> None:
    """Before any is built: no other thread runs while one is."""
    states = {each: building_states(each) for each in find_patterns(schema)}
    if sum(states.values()) > max_states:
        worst = max(states, key=lambda each: states[each])
        raise CostlyPatternsError(
            f"has patterns ({len(states)}) that take more than {max_states} states together, the most of them "
            f'"{worst[:_MAX_PATTERN_SHOWN]}"',
            r"repeat less in them, bound the length by maxLength, not by {…}, and name fewer Unicode classes (\p{…})",
        )


def _most_visits(schema: dict[str, Any]) -> int:
    try:
        return max(visits(schema, steps=0)[:LEAST_LEVELS])
    except SchemaCostError as exc:
        raise SchemaError(exc.problem, exc.hint) from exc


def _object_in(text: str) -> dict[str, Any]:
    if len(text.encode(errors="surrogatepass")) > SCHEMA_LIMIT_BYTES:
        raise SchemaError(f"is larger than {SCHEMA_LIMIT_BYTES} bytes")
    schema = _parse(text)
    if not isinstance(schema, dict):
        raise SchemaError("must be a JSON object", 'for example {"type": "object", "properties": {}}')
    return schema


def _parse(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise SchemaError(f"is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno} of the text") from exc
    except RecursionError as exc:
        raise SchemaError(f"is nested deeper than {_MAX_DEPTH}") from exc
    except SchemaError:
        raise
    except ValueError as exc:
        raise SchemaError(f"is not JSON: {exc}") from exc
    if _deeper_than(value, _MAX_DEPTH):
        raise SchemaError(f"is nested deeper than {_MAX_DEPTH}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise SchemaError(f'has the key "{(first_duplicate(pairs) or "")[:_MAX_KEY_SHOWN]}" twice in one object')
    return found


def _no_constant(name: str) -> NoReturn:
    raise SchemaError(f"is not JSON: {name} is no JSON number")


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"external references are not fetched: {uri}")


def _deeper_than(value: Any, depth: int) -> bool:  # noqa: ANN401 - any JSON value
    level = [value]
    while level and depth >= 0:
        nested = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [child for children in nested for child in children]
        depth -= 1
    return bool(level)
