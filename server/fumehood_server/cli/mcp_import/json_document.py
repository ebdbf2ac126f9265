"""Bounded reader of JSON with comments and trailing commas, as editors' configuration files have them."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fumehood_server.cli.failure import CommandError

MAX_BYTES = 16 * 1024 * 1024
"""Claude Code keeps its history beside its servers: some MiB. What is larger is no configuration."""
_MAX_NAMED = 8

# Each alternative ends by itself where its end is missing, so that no text is scanned twice.
_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A JSON object, and the keys that it gives twice, of which the last one counts."""

    value: Mapping[str, Any]
    twice: Sequence[str]


def read_json_document(path: Path) -> JsonDocument:
    """Read one JSON object from a file.

    Raises:
        CommandError: it can't be read, is too large, or holds something else.
    """
    value, twice = read_json_value(path)
    if not isinstance(value, dict):
        raise _invalid(f"{path}: holds no JSON object")
    return JsonDocument(value, twice)


def read_json_value(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Read JSON of any kind from a file, and the keys that its objects give twice.

    Raises:
        CommandError: it can't be read, or is too large.
    """
    text = _read_text(path)
    plain = _TRAILING_COMMAS.sub(_without_comma, _COMMENTS.sub(_without_comment, text))
    twice: list[str] = []

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs) and len(twice) < _MAX_NAMED:
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    twice.append(key)
                seen.add(key)
        return made

    try:
        value: Any = json.loads(plain, object_pairs_hook=make_object)
    except json.JSONDecodeError as error:
        raise _to_correct(f"{path}:{error.lineno}: is not JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise _invalid(f"{path}: nests too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise _invalid(f"{path}: holds a number that can't be read") from error
    return value, tuple(twice)


def _read_text(path: Path) -> str:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _invalid(f"{path} is not a regular file")
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}", "Name the file.", code="NOT_FOUND") from error
    if len(raw) > MAX_BYTES:
        raise _invalid(f"{path} has more than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _to_correct(f"{path}:{line}: is not UTF-8", line) from error


def _without_comment(found: re.Match[str]) -> str:
    """The string as it is; a comment as blanks, so that lines keep their numbers."""
    text = found[0]
    return text if text.startswith('"') else _NOT_NEWLINE.sub(" ", text)


def _without_comma(found: re.Match[str]) -> str:
    text = found[0]
    return " " if text == "," else text


def _to_correct(what: str, line: int) -> CommandError:
    """Whoever names the right file is to mend it, not to name another."""
    return CommandError(what, f"Correct it there, in line {line} or before it.", code="CONFIG_INVALID")


def _invalid(what: str) -> CommandError:
    todo = "Name the configuration of an MCP host: mcp.json, .mcp.json or claude_desktop_config.json."
    return CommandError(what, todo, code="CONFIG_INVALID")
