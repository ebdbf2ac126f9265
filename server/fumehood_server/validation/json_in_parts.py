"""Reads and writes long JSON part by part, so that a thread that does it lets go of the interpreter's lock in between.

`json` and `orjson` read or write a whole document in one call of C, which keeps the lock (GIL) from every other thread:
80 ms for 1 MB of small objects. Here each such call has at most `PART_CHARS` to read, or a part that `is_long` doesn't
find long to write. A single string or number is one call all the same.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from fumehood_server.validation.budget import INLINE
from fumehood_server.validation.strict_json import MAX_DEPTH, JsonError, measure, parse

PART_CHARS = 16 * 1024
"""That are read in one call."""
_SMALL_CHARS = 512
"""Looked at first where a part of several elements can't be had: the most of them are as small."""
_AT_ONCE = 256
"""Elements that are written in one call, unless they are long together."""
_BITS_A_DIGIT = 3
_SPACE = re.compile(r"[ \t\n\r]*")
_SEPARATORS = ("},", "],", ",")
"""Where a part may end. Within a text, or deeper than the elements, it doesn't, and the part is no JSON then."""
_CONTAINERS = (dict, list, tuple)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class TooLongError(Exception):
    """The JSON has more characters than it may have. It was not written to its end."""


def write(value: Any, most_chars: int | None = None) -> str:  # noqa: ANN401 - any JSON value
    """The value as JSON, with no spaces and each integer whole.

    Raises:
        TooLongError: it is longer than that.
    """
    return "".join(_counted(value, most_chars))


def length(value: Any, most_chars: int | None = None) -> int:  # noqa: ANN401 - any JSON value
    """Characters that `write` would give, no two parts of which are kept.

    Raises:
        TooLongError: as `write`.
    """
    return sum(map(len, _counted(value, most_chars)))


def read(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """What `json.loads` gives.

    Raises:
        ValueError: it raises that.
        RecursionError: the text is nested too deep.
    """
    return _Reader(text).document()


def read_strictly(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The same of what `strict_json.parse` takes. Nothing else is read.

    Raises:
        JsonError: it is refused.
    """
    try:
        return _StrictReader(text).document()
    except json.JSONDecodeError as exc:
        raise JsonError(f"is not JSON: {exc.msg} at character {exc.pos}") from None


def is_long(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether the value's JSON is more than the event loop should write. No more of it is looked at than that."""
    chars, values = 0, 1
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            chars += len(each)
        elif isinstance(each, _CONTAINERS):
            values += len(each)
            if values > INLINE.values:
                return True
            if isinstance(each, dict):
                for name in each:
                    chars += len(name)
                todo += each.values()
            else:
                todo += each
        elif isinstance(each, int):
            chars += each.bit_length() // _BITS_A_DIGIT
        if chars > INLINE.chars:
            return True
    return False


def is_long_text(text: str) -> bool:
    """Whether JSON is more than the event loop should read."""
    return len(text) > INLINE.chars or text.count(",") + text.count("[") + text.count("{") > INLINE.values


def _counted(value: Any, most_chars: int | None) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    written = 0
    for piece in _pieces(value):
        written += len(piece)
        if most_chars is not None and written > most_chars:
            raise TooLongError
        yield piece


def _pieces(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    # Without recursion: each level of generators would have to hand on every piece.
    stack: list[Iterator[str | _Long]] = [iter((_Long(value),))]
    while stack:
        piece = next(stack[-1], None)
        if piece is None:
            stack.pop()
        elif isinstance(piece, str):
            yield piece
        else:
            stack.append(_opened(piece.value))


class _Long:
    """A value that is to be written in parts."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - any JSON value
        self.value = value


def _opened(value: Any) -> Iterator[str | _Long]:  # noqa: ANN401 - any JSON value
    """The value's JSON, with what is long itself in place of its JSON."""
    if not isinstance(value, dict | list | tuple):
        yield _ENCODER.encode(value)
        return
    is_object = isinstance(value, dict)
    yield "{" if is_object else "["
    rest = iter(value.items() if isinstance(value, dict) else value)
    comma = ""
    while some := list(itertools.islice(rest, _AT_ONCE)):
        at, count = 0, len(some)
        while at < len(some):
            part: Any = dict(some[at : at + count]) if is_object else some[at : at + count]
            if not is_long(part):
                yield comma + _ENCODER.encode(part)[1:-1]
            elif count > 1:
                count //= 2
                continue
            elif is_object:
                name, member = some[at]
                yield comma + _ENCODER.encode(name) + ":"
                yield _Long(member)
            else:
                yield comma
                yield _Long(some[at])
            comma = ","
            at, count = at + count, min(2 * count, _AT_ONCE)
    yield "}" if is_object else "]"


class _Reader:
    """Of one text. It recurses one call a level, as C's reader does, and only into what is longer than a part."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Nothing is read yet."""
        self._text = text

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """What the text says."""
        at = self._past_space(0)
        value, at = self._short(at, 0) or self._long(at, 0)
        at = self._past_space(at)
        if at != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, at)
        return value

    def check(self, part: str, value: Any, at: int, depth: int) -> None:  # noqa: ANN401 - any JSON value
        """Whether a part is taken, which is read already. It begins there, and `depth` containers are around it."""

    def check_new(self, keys: Iterable[str], found: dict[str, Any]) -> None:
        """Whether keys may be added to those that there are."""

    def _short(self, at: int, depth: int) -> tuple[Any, int] | None:
        """What begins there and where it ends. None: it is an array or an object that is longer than a part."""
        text = self._text
        if text[at : at + 1] not in {"{", "["}:
            value, end = _DECODER.raw_decode(text, at)
            self.check(text[at:end], value, at, depth)
            return value, end
        for chars in (_SMALL_CHARS, PART_CHARS):
            window = text[at : at + chars]
            try:
                value, end = _DECODER.raw_decode(window)
            except (ValueError, RecursionError):
                continue
            self.check(window[:end], value, at, depth)
            return value, at + end
        return None

    def _long(self, at: int, depth: int) -> tuple[Any, int]:
        """The same, of an array or an object."""
        text = self._text
        is_object = text[at] == "{"
        closing = "}" if is_object else "]"
        found: Any = {} if is_object else []
        self.check(text[at] + closing, found, at, depth)
        at = self._past_space(at + 1)
        one_by_one_to = 0
        while True:
            if at >= one_by_one_to:
                some = self._several(at, depth, "{}" if is_object else "[]")
                if some is None:  # what was looked at for nothing is not looked at again for each element
                    one_by_one_to = at + PART_CHARS
                    continue
                value, at = some
                if is_object:
                    self.check_new(value, found)
                    found.update(value)
                else:
                    found += value
            else:
                key = ""
                if is_object:
                    key, at = self._key(at, depth)
                value, at = self._short(at, depth + 1) or self._long(at, depth + 1)
                if is_object:
                    self.check_new((key,), found)
                    found[key] = value
                else:
                    found.append(value)
                at = self._past_space(at)
                if text[at : at + 1] == closing:
                    return found, at + 1
                if text[at : at + 1] != ",":
                    raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
                at += 1
            at = self._past_space(at)

    def _several(self, at: int, depth: int, brackets: str) -> tuple[Any, int] | None:
        """Elements in brackets of their own, and where the next begins, behind the comma. None: another way is needed.

        What is cut off at a comma and put in brackets is JSON exactly if the comma stands between two elements.
        """
        window = self._text[at : at + PART_CHARS]
        for separator in _SEPARATORS:
            comma = window.rfind(separator) + len(separator) - 1
            # Without an element before the comma, empty brackets would be JSON.
            if comma < len(separator) or not window[:comma].strip(" \t\n\r"):
                continue
            part = brackets[0] + window[:comma] + brackets[1]
            try:
                value = _DECODER.decode(part)
            except (ValueError, RecursionError):
                continue
            self.check(part, value, at - 1, depth)
            return value, at + comma + 1
        return None

    def _key(self, at: int, depth: int) -> tuple[str, int]:
        text = self._text
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, end = _DECODER.raw_decode(text, at)
        self.check(text[at:end], key, at, depth)
        at = self._past_space(end)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        return key, self._past_space(at + 1)

    def _past_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()


class _StrictReader(_Reader):
    __slots__ = ()

    def check(self, part: str, value: Any, at: int, depth: int) -> None:  # noqa: ANN401 - any JSON value
        try:
            orjson.loads(part)
        except orjson.JSONDecodeError as exc:
            raise JsonError(f"is not JSON: {exc.msg} at character {at + exc.pos}") from None
        parse(part)
        if depth + measure(value).depth > MAX_DEPTH:
            raise JsonError(f"is nested deeper than {MAX_DEPTH} levels")

    def check_new(self, keys: Iterable[str], found: dict[str, Any]) -> None:
        for key in keys:
            if key in found:
                raise JsonError(f'has the key "{key[:64]}" twice in one object')


__all__ = ["TooLongError", "is_long", "is_long_text", "length", "read", "read_strictly", "write"]
