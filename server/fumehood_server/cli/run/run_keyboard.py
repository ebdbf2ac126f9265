"""Lines typed on a terminal while something else is written there: read key by key, and shown by whoever draws."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator

MAX_LINE_CHARS = 4_000
"""More of one line is left out."""
_READ_BYTES = 4_096
_ESCAPE = "\x1b"
_ENTER = frozenset("\r\n")
_ERASE = frozenset("\x7f\b")
_CLEAR = frozenset("\x15\x03")


def can_type() -> bool:
    """Whether stdin is a terminal whose foreground this process is in (tcgetpgrp(3)): another would be stopped."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


class Keyboard:
    """The line that is being typed."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: the terminal's."""
        self.descriptor = descriptor
        self.text = ""
        self.is_open = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> list[str]:
        """Take what was typed, and give the lines that are complete. To be called when the descriptor is readable."""
        data = os.read(self.descriptor, _READ_BYTES)
        self.is_open = bool(data)
        typed = self._decoder.decode(data)
        if typed.startswith(_ESCAPE):  # an arrow, or another key that means nothing here
            return []
        lines = []
        for each in typed:
            if each in _ENTER:
                lines.append(self.text)
                self.text = ""
            elif each in _ERASE:
                self.text = self.text[:-1]
            elif each in _CLEAR:
                self.text = ""
            elif (each.isprintable() or each == "\t") and len(self.text) < MAX_LINE_CHARS:
                self.text += each
        return lines


@contextlib.contextmanager
def open_keyboard() -> Iterator[Keyboard]:
    """Have the terminal hand over each key as it is pressed, unseen (termios(3): cbreak mode; signals stay keys')."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
