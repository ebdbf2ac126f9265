"""Escapes untrusted text, such as what plugins say and the names of their files, for logs, messages and terminals.

A terminal executes control characters (ECMA-48), C1 ones too; bidirectional controls reorder what stands around them
(UAX 9), so that a name looks like another; and a line separator forges a line.
"""

from __future__ import annotations

import re

# C0 but newline and tab, DEL, C1, bidirectional marks, overrides and isolates, line and paragraph separators, and lone
# surrogates, which no encoding can hold.
_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"[{_UNSAFE}\n]")

_DELETE = 0x7F
_CONTROL_PICTURES = 0x2400  # the Unicode block of that name: one symbol for each of C0


def printable(text: object) -> str:
    """The text with every character that can't be printed or encoded written as its escape, newlines too.

    A file's name on Linux is any bytes: Python gives those that are not UTF-8 as lone surrogates, which neither JSON
    nor protobuf can hold, and among the others are those that steer terminals.
    """
    line = str(text)
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def visible(text: str) -> str:
    """The text for a reader: what would steer a terminal is replaced by a symbol. Newlines and tabs stay."""
    return text if text.isprintable() else _UNSAFE_CHARACTER.sub(_symbol, text)


def visible_line(text: str) -> str:
    """The text for a reader as one line: `visible`, and no newline."""
    return text if text.isprintable() else _UNSAFE_IN_LINE.sub(_symbol, text)


def escape_json(text: str) -> str:
    r"""JSON text with what would steer a terminal written as `\uXXXX`: the same values to whoever parses it.

    JSON itself makes only C0 be escaped (RFC 8259).
    """
    return text if text.isprintable() else _UNSAFE_CHARACTER.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < ord(" "):
        return chr(_CONTROL_PICTURES + code)
    return "\u2421" if code == _DELETE else "\ufffd"
