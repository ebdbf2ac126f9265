"""Moves the wire from stdin and stdout to descriptors of its own (dup(2)), before the author's code runs."""

from __future__ import annotations

import os
import sys


def take_wire() -> tuple[int, int]:
    """Move the real stdin and stdout to descriptors of their own, and return those.

    What reads fd 0 afterwards finds the end of file; what writes to fd 1, be it `print`, C code or a child process,
    lands on stderr, the log. The wire's descriptors are not inherited over exec.
    """
    wire_in, wire_out = os.dup(0), os.dup(1)  # not inheritable (PEP 446)
    empty = _empty()
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return wire_in, wire_out


def prepare_streams() -> None:
    """Have what is printed go out line by line: fd 1 was no terminal when its stream was made, so it buffers blocks."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper unless replaced


def close_in_forks(*wire: int) -> None:
    """Have these closed in every process that the author's code forks. Last of all: it can't be taken back."""
    if not _wire:
        os.register_at_fork(after_in_child=_close_in_child)
    _wire.extend(wire)


_wire: list[int] = []
"""What a forked child closes."""


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
