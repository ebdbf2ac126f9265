"""Escapes untrusted text, such as what plugins say and the names of their files, for logs, messages and terminals.

A terminal executes control characters (ECMA-48), C1 ones too; bidirectional controls reorder what stands around them
(UAX 9), so that a name looks like another; and a line separator forges a line.
"""

from __future__ import annotations

import re

# C0 but newline and tab, DEL, C1, bidirectional marks, overrides and isolates, line and paragraph separators, and lone
# surrogates, which no encoding can hold.
_UNSAFE_RANGES = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C)),
    *((0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069), (0xD800, 0xDFFF)),
)
_UNSAFE = "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in _UNSAFE_RANGES)
_UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"[{_UNSAFE}\n]")

# A table, since a line of control characters alone takes a function for each of them ten times as long.
_LINE_ESCAPES = {
    code: ascii(chr(code))[1:-1]
    for first, last in (*_UNSAFE_RANGES, (ord("\t"), ord("\n")))
    for code in range(first, last + 1)
}

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


def escape_line(text: str) -> str:
    """The text as one line of a log: what would steer a terminal is written as its escape, tabs and newlines too."""
    return text if text.isprintable() else text.translate(_LINE_ESCAPES)


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
