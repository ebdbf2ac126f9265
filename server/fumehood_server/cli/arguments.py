"""Parses a call's arguments: `key=value` typed by the tool's schema, `key:=JSON`, and whole objects."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.schema import Schema, parameters, resolve, type_text, types

MAX_ARGUMENTS_BYTES = 16 * 1024 * 1024
"""Most bytes read of a file or of stdin. The sidecar's own limit is lower; this keeps a device from filling memory."""

_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False}


def gather_arguments(pairs: Sequence[str], whole: str | None, schema: Schema) -> dict[str, Any]:
    """One object of `--args` and the pairs; a pair overrides the same key in `--args`.

    Missing keys, bounds and patterns are left to the sidecar, which validates every caller's arguments.

    Raises:
        CommandError: a text can't be made into what the schema asks for.
    """
    arguments = read_whole(whole) if whole is not None else {}
    repeated: dict[str, list[str]] = {}
    for pair in pairs:
        name, colon, text = _split(pair)
        if not colon:
            repeated.setdefault(name, []).append(text)
            continue
        arguments[name] = _json(name, text)
    for name, texts in repeated.items():
        arguments[name] = _typed(name, texts, schema)
    return arguments


def typed_argument(name: str, text: str, schema: Schema) -> Any:  # noqa: ANN401 - any JSON
    """The value of one argument, by the schema of the object that it is a member of.

    Raises:
        CommandError: the text can't be made into what the schema asks for.
    """
    return _typed(name, [text], schema)


def gather_words(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """One object of words that are either pairs or, the first of them, the whole object: JSON, `@FILE` or `-`.

    Raises:
        CommandError: as `gather_arguments`.
    """
    is_whole = bool(words) and (words[0] == "-" or words[0].lstrip()[:1] in {"@", "{", "[", '"'})
    whole, pairs = (words[0], words[1:]) if is_whole else (None, words)
    unfit = next((each for each in pairs if "=" not in each), None)
    if unfit is not None:
        todo = "Give key=value, key:=JSON, or before them one JSON object, @FILE or - for stdin."
        raise _bad(f'"{unfit}" is not an argument', todo)
    arguments = read_whole(whole, "the first argument") if whole is not None else {}
    return {**arguments, **gather_arguments(pairs, None, schema)}


def read_whole(source: str, option: str = "--args") -> dict[str, Any]:
    """The object that an option gives: JSON itself, `@FILE`, or `-` for stdin.

    Raises:
        CommandError: it can't be read, or is not one JSON object.
    """
    text = _read_source(source, option)
    try:
        value = json.loads(text)
    except ValueError as error:
        todo = "Give one object, such as '{\"count\": 2}', @FILE or -."
        raise _bad(f"{option} is not JSON: {error}", todo) from error
    if not isinstance(value, dict):
        raise _bad(f"{option} is a JSON {_name(value)}, not an object", "Give one object, such as '{\"count\": 2}'.")
    return value


def _read_source(source: str, option: str) -> str:
    if source != "-" and not source.startswith("@"):
        return source
    try:
        if source == "-":
            raw = sys.stdin.buffer.read(MAX_ARGUMENTS_BYTES + 1)
        else:
            with Path(source[1:]).open("rb") as file:
                raw = file.read(MAX_ARGUMENTS_BYTES + 1)
        if len(raw) > MAX_ARGUMENTS_BYTES:
            raise _bad(f"{option} {source} is larger than {MAX_ARGUMENTS_BYTES:,} bytes", "Send less.")
        return raw.decode()
    except OSError as error:
        raise _bad(f"can't read {error.filename}: {error.strerror}", "Give a file that can be read.") from error
    except UnicodeDecodeError as error:
        raise _bad(f"{option} {source} is not UTF-8", "JSON is UTF-8 (RFC 8259).") from error


def _split(pair: str) -> tuple[str, bool, str]:
    name, equals, text = pair.partition("=")
    if not equals or not name.rstrip(":"):
        raise _bad(f'"{pair}" is not an argument', "Give key=value, key:=JSON, or the whole object with --args.")
    return name.removesuffix(":"), name.endswith(":"), text


def _typed(name: str, texts: Sequence[str], root: Schema) -> Any:  # noqa: ANN401 - any JSON
    schema = _schema_of(name, root)
    if schema is None:
        return _untyped(texts[0]) if len(texts) == 1 else [_untyped(text) for text in texts]
    wanted = types(schema, root)
    if "array" in wanted and (len(texts) > 1 or not _looks_like("[", texts[0])) and "string" not in wanted:
        items = resolve(schema.get("items"), root)
        return [_scalar(name, text, items, root) for text in texts]
    if len(texts) > 1:
        raise _bad(f"{name} is given {len(texts)} times", f"It takes one value: {type_text(schema, root)}.")
    return _scalar(name, texts[0], schema, root)


def _schema_of(name: str, root: Schema) -> Schema | None:
    """The property's schema; None when the schema allows the key and says nothing of it."""
    properties = root.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return resolve(properties[name], root)
    if root.get("additionalProperties") is False:
        known = [each.name for each in parameters(root)]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It takes: {', '.join(known) or 'nothing'}."
        raise _bad(f"the tool takes no argument {name}", hint, pointer=f"/{name}")
    return None


def _scalar(name: str, text: str, schema: Schema, root: Schema) -> Any:  # noqa: ANN401, PLR0911 - one return a type
    wanted = types(schema, root)
    if not wanted:
        return _untyped(text)
    if "integer" in wanted and (whole := _integer(text)) is not None:
        return whole
    if "number" in wanted and (number := _number(text)) is not None:
        return number
    if "boolean" in wanted and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if "array" in wanted and _looks_like("[", text):
        return _json(name, text)
    if "object" in wanted and _looks_like("{", text):
        return _json(name, text)
    if "string" in wanted:
        return text
    if "null" in wanted and text == "null":
        return None
    raise _bad(f'{name}={text}: "{text}" is not {type_text(schema, root)}', "", pointer=f"/{name}")


def _integer(text: str) -> int | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if type(value) is int else None


def _number(text: str) -> float | None:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return None
    return value if type(value) in {int, float} else None


def _no_constant(text: str) -> float:
    raise ValueError(text)  # NaN and the infinities are no JSON (RFC 8259)


def _looks_like(bracket: str, text: str) -> bool:
    return text.lstrip().startswith(bracket)


def _untyped(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def _json(name: str, text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise _bad(f"{name} is not JSON: {error}", "Quote it for the shell: 'key:=[1, 2]'.") from error


def _name(value: object) -> str:
    return {list: "array", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")


def _bad(what: str, todo: str, *, pointer: str = "") -> CommandError:
    return CommandError(what, todo, code="BAD_ARGUMENTS", details={"pointer": pointer} if pointer else None)
