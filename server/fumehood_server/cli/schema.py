"""JSON Schema for people: a tool's parameters, their types in words, an example call."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fumehood_server.cli.output import one_line
from fumehood_server.model.json_pointer import unescaped

Schema = Mapping[str, Any]

_MAX_DEPTH = 8
"""How far references and nestings are followed: a schema may refer to itself."""

_MAX_FIELDS = 200
"""Rows of one tool. A schema may refer to itself in many places."""

_MAX_FIELD_DEPTH = 4
_MAX_EXAMPLES = 3
_MAX_EXAMPLE_CHARS = 40
_ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a tool."""

    name: str
    type_text: str
    required: bool
    default: str
    """As JSON. Empty when there is none."""
    description: str
    schema: Schema


def parameters(schema: Schema) -> list[Parameter]:
    """The top-level properties of an object schema, the required ones first."""
    return _properties(schema, schema)


def fields(schema: Schema) -> list[Parameter]:
    """The parameters, each followed by the fields within it: `filters[].op`, `options.depth`, `labels.*`."""
    found: dict[tuple[str, str], Parameter] = {}

    def add(parameter: Parameter, depth: int) -> None:
        key = parameter.name, parameter.type_text
        if key in found or len(found) == _MAX_FIELDS:
            return
        found[key] = parameter
        if depth < _MAX_FIELD_DEPTH:
            for each in _within(parameter.name, parameter.schema, schema):
                add(each, depth + 1)

    for each in parameters(schema):
        add(each, 1)
    return list(found.values())


def _within(name: str, schema: Schema, root: Schema, depth: int = 0) -> Iterator[Parameter]:
    """The fields of an object, or of a list's objects, whichever branch or part of `allOf` they stand in."""
    for part in _parts(schema, root) if depth <= _MAX_FIELD_DEPTH else ():
        for each in _properties(part, root):
            yield replace(each, name=f"{name}.{each.name}")
        for pattern, each in _members(part, "patternProperties"):
            yield _parameter(f"{name}./{pattern}/", each, root, required=False)
        if isinstance(part.get("additionalProperties"), Mapping) and part["additionalProperties"]:
            yield _parameter(f"{name}.*", part["additionalProperties"], root, required=False)
        for index, each in _members(part, "prefixItems"):
            yield _parameter(f"{name}[{index}]", each, root, required=False)
        if isinstance(part.get("items"), Mapping):
            yield from _within(f"{name}[]", resolve(part["items"], root), root, depth + 1)


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    """The schema and those in its `allOf`, `anyOf` and `oneOf`, and in theirs: all that may say what a value is."""
    found = [schema]
    for part in found:  # it grows meanwhile
        if len(found) > _MAX_FIELDS:
            break
        for keyword in ("allOf", "anyOf", "oneOf"):
            found += (resolve(each, root) for _, each in _members(part, keyword))
    return found


def _members(schema: Schema, keyword: str) -> Iterable[tuple[Any, Any]]:
    """The subschemas of a keyword that has several, each with its name or its index."""
    value = schema.get(keyword)
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _properties(schema: Schema, root: Schema) -> list[Parameter]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return []
    required = schema.get("required")
    names = set(map(str, required)) if isinstance(required, list) else set()
    found = [_parameter(str(name), each, root, required=name in names) for name, each in properties.items()]
    return sorted(found, key=lambda parameter: not parameter.required)


def _parameter(name: str, raw: Any, root: Schema, *, required: bool) -> Parameter:  # noqa: ANN401 - any JSON
    schema = resolve(raw, root)
    description = raw.get("description") if isinstance(raw, Mapping) else None
    return Parameter(
        name=name,
        type_text=type_text(schema, root),
        required=required,
        default=json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "",
        description=one_line(str(description or schema.get("description") or "")),
        schema=schema,
    )


def resolve(schema: Any, root: Schema) -> Schema:  # noqa: ANN401 - any JSON
    """`schema` with its top-level `$ref` followed. What can't be followed is taken as a schema of anything."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = _follow(reference, root)
        if not isinstance(target, Mapping):
            return beside
        schema = {**target, **beside}
    return {}


def _follow(reference: str, root: Schema) -> Any:  # noqa: ANN401 - any JSON
    if not reference.startswith("#"):
        return None
    node: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = unescaped(step)
        if not isinstance(node, Mapping) or key not in node:
            return None
        node = node[key]
    return node


def choices(schema: Schema, root: Schema) -> list[Schema]:
    """The alternatives of `anyOf` or `oneOf`; the schema itself where it has none."""
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches:
            return [resolve(each, root) for each in branches]
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
        return choices(resolve(schema["allOf"][0], root), root)
    return [schema]


def types(schema: Schema, root: Schema) -> list[str]:
    """JSON types that values may have, in the schema's order; empty when it says nothing."""
    found: list[str] = []
    for each in choices(schema, root):
        named = each.get("type")
        if isinstance(named, str):
            found.append(named)
        elif isinstance(named, list):
            found.extend(str(one) for one in named)
        else:
            found.extend(_type_of(value) for value in _values(each))
    return list(dict.fromkeys(found))


def _values(schema: Schema) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else []


def _type_of(value: object) -> str:
    named = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return named.get(type(value), "null")


def value_words(schema: Schema, root: Schema) -> list[str]:
    """The values that an argument may be chosen from, as they are typed; empty where the schema names none."""
    found: list[str] = []
    for each in choices(schema, root):
        items = resolve(each.get("items"), root)
        found += (_value_text(value) for value in [*_values(each), *_values(items)])
        if each.get("type") == "boolean":
            found += ["true", "false"]
    return list(dict.fromkeys(found))


def type_text(schema: Schema, root: Schema, depth: int = 0) -> str:
    """A type in words, such as `integer, 1 to 10` or `4 | 6 | 8`."""
    if depth > _MAX_DEPTH:
        return _ANY
    branches = choices(schema, root)
    if branches != [schema]:
        return " | ".join(dict.fromkeys(type_text(each, root, depth + 1) for each in branches))
    values = _values(schema)
    if values:
        return " | ".join(_value_text(value) for value in values)
    named = schema.get("type", _ANY)
    text = " | ".join(map(str, named)) if isinstance(named, list) else str(named)
    if text == "array":
        items = resolve(schema.get("items"), root)
        text = f"array of {_in_brackets(type_text(items, root, depth + 1))}" if items else "array"
    return text + "".join(f", {bound}" for bound in _bounds(schema))


def _in_brackets(text: str) -> str:
    """The type of an array's items, with its bounds apart from the array's own."""
    kind, comma, bounds = text.partition(", ")
    return f"{kind} ({bounds})" if comma else text


def _value_text(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _bounds(schema: Schema) -> list[str]:
    bounds: list[str] = []
    for least, most, noun in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ):
        low, high = schema.get(least), schema.get(most)
        unit = noun if (low if high is None else high) != 1 else noun.removesuffix("s")
        if low is not None and high is not None:
            bounds.append(f"{low} to {high}{unit}" if low != high else f"{low}{unit}")
        elif low is not None:
            bounds.append(f"from {low}{unit}")
        elif high is not None:
            bounds.append(f"to {high}{unit}")
    for keyword, words in (
        ("exclusiveMinimum", "above {}"),
        ("exclusiveMaximum", "below {}"),
        ("multipleOf", "in steps of {}"),
        ("pattern", "like {}"),
        ("x-unchecked-pattern", "like {}, which the server alone checks"),
        ("format", "{}"),
    ):
        if keyword in schema:
            bounds.append(words.format(schema[keyword]))
    return bounds


def example_call(name: str, schema: Schema) -> str:
    """A command that calls the tool with its required arguments, ready to be edited."""
    pairs = [
        f"{each.name}={shlex.quote(value)}"
        for each in parameters(schema)
        if each.required
        for value in _examples(each.schema, schema)
    ]
    return " ".join(["fumehood", "call", name, *pairs])


def _examples(schema: Schema, root: Schema) -> list[str]:
    """Values for one argument. More than one make a list, as one does where the schema wants a list."""
    branch = choices(schema, root)[0]
    items = resolve(branch.get("items"), root)
    least = branch.get("minItems", 1)
    scalar = {*types(items, root)} and not {"array", "object", "null"} & {*types(items, root)}
    if types(branch, root)[:1] != ["array"] or branch.get("examples") or _values(branch) or not scalar:
        return [_example(schema, root)]
    return [_example(items, root)] * (min(max(least, 1), _MAX_EXAMPLES) if isinstance(least, int) else 1)


def _example(schema: Schema, root: Schema) -> str:
    return _value_text(_example_value(schema, root))


def _example_value(schema: Schema, root: Schema, depth: int = 0) -> Any:  # noqa: ANN401, PLR0911 - any JSON, one return a type
    """A value that fits, with what is required within it: as far as bounds and types tell, and not patterns."""
    branch = choices(schema, root)[0]
    examples = branch.get("examples")
    values = [*(examples if isinstance(examples, list) else []), *_values(branch)]
    if values:
        return values[0]
    match next(iter(types(branch, root)), "object" if "properties" in branch else "string"):
        case "object":
            inner = _properties(branch, root) if depth < _MAX_FIELD_DEPTH else []
            return {each.name: _example_value(each.schema, root, depth + 1) for each in inner if each.required}
        case "array":
            return _example_items(branch, root, depth)
        case "integer":
            return _example_number(branch, 1)
        case "number":
            return _example_number(branch, 1.5)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            least = branch.get("minLength")
            return "." * min(max(3, least if isinstance(least, int) else 0), _MAX_EXAMPLE_CHARS)


def _example_items(schema: Schema, root: Schema, depth: int) -> list[Any]:
    items, least = resolve(schema.get("items"), root), schema.get("minItems", 0)
    if depth >= _MAX_FIELD_DEPTH or not items or not isinstance(least, int):
        return []
    inner = choices(items, root)[0]
    # Of a list that may be empty, one shows what its objects are made of.
    least = max(least, 1) if inner.get("properties") else least
    return [_example_value(items, root, depth + 1)] * min(least, _MAX_EXAMPLES)


def _example_number(schema: Schema, usual: float) -> Any:  # noqa: ANN401 - as the schema has it
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    if isinstance(low, int | float):
        return low
    if isinstance(above, int | float):
        return above + 1
    return min(usual, high) if isinstance(high, int | float) else usual
