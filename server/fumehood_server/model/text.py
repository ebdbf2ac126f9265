"""Escapes untrusted text, such as the names of a plugin's files, for logs, messages and terminals."""

from __future__ import annotations


def printable(text: object) -> str:
    """The text with every character that can't be printed or encoded written as its escape.

    A file's name on Linux is any bytes: Python gives those that are not UTF-8 as lone surrogates, which neither JSON
    nor protobuf can hold, and among the others are those that steer terminals.
    """
    line = str(text)
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
