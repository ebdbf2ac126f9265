"""Takes the wire away from stdin and stdout, before any of the author's code can touch it."""

from __future__ import annotations

import os
import sys


def take_wire() -> tuple[int, int]:
    """Move the real stdin and stdout to descriptors of their own, and return those.

    What reads fd 0 afterwards finds the end of file; what writes to fd 1, be it `print`, C code or a child process,
    lands on stderr, the log. The wire's descriptors are not inherited over exec, and closed in a forked child.
    """
    wire_in, wire_out = os.dup(0), os.dup(1)  # not inheritable (PEP 446)
    os.set_blocking(wire_in, True)
    os.set_blocking(wire_out, True)
    empty = _empty()
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    if sys.stdout is not None:
        # It buffers whole blocks, since fd 1 was no terminal when it was made; a log is read line by line.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper unless replaced

    if not _registered:
        os.register_at_fork(after_in_child=_close_in_child)
        _registered.append(True)
    _wire.extend((wire_in, wire_out))
    return wire_in, wire_out


_wire: list[int] = []
"""What a forked child closes."""
_registered: list[bool] = []


def _close_in_child() -> None:
    while _wire:
        os.close(_wire.pop())


def _empty() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        # A sandbox may have no /dev. A pipe that nobody writes to reads the same.
        read_end, write_end = os.pipe()
        os.close(write_end)
        return read_end
