"""TOML parser with line numbers: the line of each key, so that errors can name it."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fumehood_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOML_LIMIT_BYTES = 1024 * 1024
"""Room for a manifest of three tools with the largest schemas; a log that was named by mistake is refused. The parser
takes up to 400 times as much memory."""

MAX_KEY_PARTS = 32
"""Parts of one dotted key: a schema's tables nested ten deep. Each dot costs the parser a table, and us a path."""
MAX_NESTING = 128
"""Parts of a value's whole path: a schema of the deepest nesting, written as tables."""
MAX_PLACES = 100_000
"""Keys and elements whose lines are kept, each with its whole path: 10 MB, or 100 MB at the deepest nesting."""

Key = tuple[str | int, ...]
"""Path of a value: names of tables and keys, and indexes of arrays."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_PART}\.[ \t]*+){{{MAX_KEY_PARTS}}}{_PART}")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True)
class TomlSource:
    """One parsed file. `error` is the exception to raise about it: its class says who must act."""

    path: Path
    data: Mapping[str, Any]
    text: str
    error: type[ConfigError]
    _lines: dict[Key, int] = field(default_factory=dict, init=False)

    @property
    def lines(self) -> Mapping[Key, int]:
        """The line of each key. Located when it is first asked for: few files have problems to tell."""
        if not self._lines:
            self._lines.update(_Locator(self.text).locate_keys())
        return self._lines

    def line(self, key: Key) -> int:
        """Line of `key`, or of the innermost table or array around it that the file writes down; 1 for none."""
        lines = self.lines
        while key:
            found = lines.get(key)
            if found:
                return found
            key = key[:-1]
        return 1

    def problem(self, key: Key, problem: str, hint: str = "") -> ConfigError:
        """The exception for a problem at `key`."""
        dotted = ".".join(str(part) for part in key)
        return self.error(self.path, problem, line=self.line(key), key=dotted, hint=hint)


def read_toml(path: Path, error: type[ConfigError] = ConfigError) -> TomlSource:
    """Read and parse one file.

    Raises:
        ConfigError: or `error`; the file is missing, unreadable, not a regular file, too large, not UTF-8 or not TOML.
    """
    text = _read_text(path, error)
    long = _LONG_KEY.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise error(path, f"has a dotted key of more than {MAX_KEY_PARTS} parts", line=line)
    try:
        data = tomllib.loads(text)
        _check_room(data)
    except tomllib.TOMLDecodeError as exc:
        found = _AT_LINE.search(str(exc))
        line = int(found[1]) if found else text.count("\n") + 1
        problem = _AT_LINE.sub("", str(exc)).replace("(at end of document)", "at the end of the file").strip()
        raise error(path, f"not valid TOML: {problem}", line=line) from exc
    except (ValueError, RecursionError) as exc:
        # tomllib raises these for an integer of thousands of digits and for arrays nested a thousand deep, _check_room
        # the ValueError.
        raise error(
            path, "holds too much: a number is too long, values are nested too deeply, or there are too many"
        ) from exc
    return TomlSource(path=path, data=data, text=text, error=error)


def _read_text(path: Path, error: type[ConfigError]) -> str:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise error(path, "is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                raw = file.read(TOML_LIMIT_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise error(path, f"can't be read: {exc.strerror}") from exc
    if len(raw) > TOML_LIMIT_BYTES:
        raise error(path, f"is larger than {TOML_LIMIT_BYTES} bytes")
    try:
        return raw.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as exc:
        raise error(path, "is not UTF-8", line=raw.count(b"\n", 0, exc.start) + 1) from exc


def _check_room(data: Mapping[str, Any]) -> None:
    """Bound what is located, and how deep whoever reads the values recurses.

    Raises:
        ValueError: there is too much of it.
    """
    places, depth = 0, 0
    level: list[Any] = [data]
    while level:
        depth += 1
        nested = [each.values() if isinstance(each, dict) else each for each in level]
        places += sum(map(len, nested))
        if depth > MAX_NESTING + 1 or places > MAX_PLACES:
            raise ValueError
        level = [value for values in nested for value in values if isinstance(value, dict | list)]


class _Locator:
    """Scans text for the lines of its keys.

    It never checks syntax: give it only text that `tomllib` has accepted.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[Key, int] = {}
        self._last_index: dict[Key, int] = {}

    def locate_keys(self) -> dict[Key, int]:
        table: Key = ()
        while self._skip_blank():
            if self._text[self._pos] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _line(self) -> int:
        return bisect_right(self._newlines, self._pos - 1) + 1

    def _skip_blank(self) -> bool:
        """Skip spaces and comments. False at the end of the text."""
        while self._pos < len(self._text):
            char = self._text[self._pos]
            if char == "#":
                end = self._text.find("\n", self._pos)
                self._pos = len(self._text) if end < 0 else end
            elif char in " \t\n":
                self._pos += 1
            else:
                return True
        return False

    def _skip_spaces(self) -> None:
        while self._text[self._pos : self._pos + 1] in {" ", "\t"}:
            self._pos += 1

    def _header(self) -> Key:
        line = self._line()
        array = self._text.startswith("[[", self._pos)
        self._pos += 2 if array else 1
        parts = self._dotted()
        self._pos = self._text.index("]", self._pos) + (2 if array else 1)
        path: Key = ()
        for part in parts[:-1]:
            path = (*path, part)
            self._lines.setdefault(path, line)
            if path in self._last_index:
                path = (*path, self._last_index[path])
        path = (*path, parts[-1])
        if not array:
            self._lines[path] = line
            return path
        self._lines.setdefault(path, line)
        self._last_index[path] = self._last_index.get(path, -1) + 1
        path = (*path, self._last_index[path])
        self._lines[path] = line
        return path

    def _pair(self, table: Key) -> None:
        line = self._line()
        path = table
        for part in self._dotted():
            path = (*path, part)
            self._lines.setdefault(path, line)
        self._pos = self._text.index("=", self._pos) + 1
        self._value(path)

    def _dotted(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip_spaces()
            start = self._pos
            if self._text[start] in "\"'":
                self._string()
                parts.append(tomllib.loads("k = " + self._text[start : self._pos])["k"])
            else:
                bare = _BARE_KEY.match(self._text, start)
                self._pos = bare.end() if bare else start + 1
                parts.append(self._text[start : self._pos])
            self._skip_spaces()
            if self._text[self._pos : self._pos + 1] != ".":
                return parts
            self._pos += 1

    def _value(self, path: Key) -> None:
        self._skip_spaces()
        char = self._text[self._pos]
        if char in "\"'":
            self._string()
        elif char == "[":
            self._array(path)
        elif char == "{":
            self._inline_table(path)
        else:
            scalar = _SCALAR.match(self._text, self._pos)
            self._pos = scalar.end() if scalar else self._pos + 1

    def _array(self, path: Key) -> None:
        self._pos += 1
        index = 0
        while self._skip_blank() and self._text[self._pos] != "]":
            self._lines[(*path, index)] = self._line()
            self._value((*path, index))
            index += 1
            if self._skip_blank() and self._text[self._pos] == ",":
                self._pos += 1
        self._pos += 1

    def _inline_table(self, path: Key) -> None:
        self._pos += 1
        while self._skip_blank() and self._text[self._pos] != "}":
            self._pair(path)
            if self._skip_blank() and self._text[self._pos] == ",":
                self._pos += 1
        self._pos += 1

    def _string(self) -> None:
        quote = self._text[self._pos]
        long = self._text.startswith(quote * 3, self._pos)
        end = quote * 3 if long else quote
        self._pos += len(end)
        while not self._text.startswith(end, self._pos):
            self._pos += 2 if quote == '"' and self._text[self._pos] == "\\" else 1
        self._pos += len(end)
        # A long string may end in up to two quotes of its own, right before the three that close it.
        while long and self._text.startswith(quote, self._pos):
            self._pos += 1
