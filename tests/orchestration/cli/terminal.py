"""A command on a controlling terminal of its own, at which a test types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

from tests import preloaded
from tests.cli.command import TIMEOUT_S, environment

_MAIN = """
import fcntl, os, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from fumehood_server.cli import main
main()
"""
ROWS, COLUMNS = 40, 120
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r]")


class Terminal:
    """What the command has written so far, and its keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process = process
        self._ours = ours
        self._written = b""

    @property
    def raw(self) -> str:
        return self._written.decode(errors="replace")

    @property
    def text(self) -> str:
        """Without what moves the cursor and colours."""
        return CONTROL.sub("", self.raw)

    def until(self, text: str) -> None:
        """Read until it is there."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.text:
            assert self._read(deadline - time.monotonic()), f"no {text!r} in:\n{self.text}"

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Its exit status, once all that it writes was read."""
        while self._read(TIMEOUT_S):
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._ours], [], [], max(timeout_s, 0))[0]:
            return False
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:  # EIO: the last holder of the other side has closed it
            return False
        self._written += piece
        return bool(piece)


@contextlib.contextmanager
def on_terminal(*arguments: str, address: str) -> Iterator[Terminal]:
    """`fumehood` with these arguments, ended with the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        with preloaded.Popen(
            [*preloaded.PYTHON, "-c", _MAIN, *arguments],
            env=environment(address, {"TERM": "xterm"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            theirs = -1
            try:
                yield Terminal(process, ours)
            finally:
                if process.poll() is None:
                    process.kill()
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
