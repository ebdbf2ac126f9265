"""Reads a grammar in llama.cpp's GBNF, and writes it in the Lark syntax of llguidance.

Every character becomes a lexeme of its own, so that the parser decides alone, as llama.cpp's does. llguidance's own
conversion joins characters into greedy lexemes, and so refuses "xxy" for `root ::= a b`, `a ::= "x"*`, `b ::= "x" "y"`.
"""

from __future__ import annotations

import re
import sys

from fumehood_server.validation.budget import KIB

MAX_GRAMMAR_CHARS = 64 * KIB
MAX_REPETITIONS = 2_000
"""As llama.cpp has it."""
_MAX_DEPTH = 32
"""Of brackets. This reader recurses, and so does the one behind it."""

_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_TIMES = re.compile(r"\{[ \t]*([0-9]{1,5})[ \t]*(?:(,)[ \t]*([0-9]{1,5})?[ \t]*)?\}")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_SURROGATES = (0xD800, 0xDFFF)
_SUFFIXES: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_TOKENS = re.compile(r"!?<")


class GrammarError(ValueError):
    """The text is no grammar that can be checked. The message says why, and where."""


def lark_of(text: str) -> str:
    """The same grammar in llguidance's Lark syntax.

    Raises:
        GrammarError: the text is none, or names tokens of a model, which text does not show.
    """
    if len(text) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"is longer than {MAX_GRAMMAR_CHARS} characters")
    return _Reader(text).grammar()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._numbers: dict[str, int] = {}
        self._rules: dict[str, str] = {}

    def grammar(self) -> str:
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            self._rule()
            self._skip(_SPACE_AND_LINES)
        missing = [name for name in self._numbers if name not in self._rules]
        if "root" not in self._rules:
            raise GrammarError('has no rule "root"')
        if missing:
            raise GrammarError(f'has no rule "{missing[0][:64]}", which others name')
        lines = [f"r{self._numbers[name]}: {body}" for name, body in self._rules.items()]
        return "\n".join(["%llguidance {}", f"start: r{self._numbers['root']}", *lines, ""])

    def _rule(self) -> None:
        name = self._name()
        self._skip(_SPACE)
        if not self._take("::="):
            raise self._error("::= is missing")
        if name in self._rules:
            raise self._error(f'the rule "{name[:64]}" is there twice')
        self._skip(_SPACE_AND_LINES)
        self._number(name)
        self._rules[name] = self._alternatives(0)
        if self._here() not in "\r\n":
            raise self._error("the end of the line is missing")

    def _alternatives(self, depth: int) -> str:
        found = [self._sequence(depth)]
        while self._take("|"):
            self._skip(_SPACE_AND_LINES)
            found.append(self._sequence(depth))
        return " | ".join(found)

    def _sequence(self, depth: int) -> str:
        space = _SPACE_AND_LINES if depth else _SPACE
        items: list[str] = []
        while (item := self._item(depth)) is not None:
            self._skip(space)
            while (times := self._times()) is not None:
                item = f"({item}){times}"
                self._skip(space)
            items.append(item)
        return " ".join(items) or '""'

    def _item(self, depth: int) -> str | None:
        """The next one. None: the sequence ends."""
        if self._take('"'):
            return self._literal()
        if self._take("["):
            return self._class()
        if self._take("."):
            return "/(?s:.)/"
        if self._take("("):
            return self._group(depth + 1)
        if _TOKENS.match(self._text, self._at):
            raise self._error("it names a token of a model, which can't be seen in text")
        if _NAME.match(self._text, self._at):
            return f"r{self._number(self._name())}"
        return None

    def _group(self, depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise self._error(f"brackets are deeper than {_MAX_DEPTH}")
        self._skip(_SPACE_AND_LINES)
        inner = self._alternatives(depth)
        if not self._take(")"):
            raise self._error(") is missing")
        return f"({inner})"

    def _literal(self) -> str:
        found = []
        while not self._take('"'):
            found.append(f"/{_escaped(self._character())}/")
        return " ".join(found) or '""'

    def _class(self) -> str:
        negated = "^" if self._take("^") else ""
        ranges = []
        while not self._take("]"):
            first = last = self._character()
            if self._here() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._character()
            if last < first:
                raise self._error("a range ends before it begins")
            ranges.append(_escaped(first) if first == last else f"{_escaped(first)}-{_escaped(last)}")
        if not ranges:
            raise self._error("[] holds no character")
        return f"/[{negated}{''.join(ranges)}]/"

    def _character(self) -> str:
        here = self._here()
        if not here:
            raise self._error('" or ] is missing')
        self._at += 1
        if here != "\\":
            return here
        kind = self._here()
        self._at += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        digits = self._text[self._at : self._at + _HEX_DIGITS.get(kind, 0)]
        if _HEX.fullmatch(digits) is None or len(digits) != _HEX_DIGITS[kind]:
            raise self._error("that is no escape")
        self._at += len(digits)
        number = int(digits, 16)
        if number > sys.maxunicode or _SURROGATES[0] <= number <= _SURROGATES[1]:
            raise self._error("there is no such character")
        return chr(number)

    def _times(self) -> str | None:
        """What llguidance writes for the repetition here. None: there is none."""
        suffix = _SUFFIXES.get(self._here())
        if suffix is not None:
            self._at += 1
            least, most = suffix
        else:
            found = _TIMES.match(self._text, self._at)
            if found is None:
                return None
            self._at = found.end()
            least = int(found[1])
            most = int(found[3]) if found[3] else None if found[2] else least
        if (most is not None and most < least) or max(least, most or 0) > MAX_REPETITIONS:
            raise self._error(f"it can't be repeated so often: {MAX_REPETITIONS} times at most")
        return f"{{{least},{'' if most is None else most}}}"

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._error("a rule's name is missing")
        self._at = found.end()
        return found[0]

    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _skip(self, space: re.Pattern[str]) -> None:
        found = space.match(self._text, self._at)
        self._at = self._at if found is None else found.end()

    def _error(self, problem: str) -> GrammarError:
        line = self._text.count("\n", 0, self._at) + 1
        return GrammarError(f"can't be read at line {line}, character {self._at}: {problem}")


def _escaped(character: str) -> str:
    """As in any place of a regular expression of Rust's `regex`."""
    return f"\\u{{{ord(character):x}}}"
