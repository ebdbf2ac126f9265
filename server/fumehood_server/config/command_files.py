"""Files of a command that the sidecar runs as itself: `command` in [journal.checkpoints]."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path


def command_files(command: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """The program, wherever PATH may find it, and what its arguments name. Absolute. They need not exist.

    `folder` is its working directory. An argument names a file if it has a slash in it and is no URL, or if a file of
    that name is there; so does each word of one with several, as `sh -c` takes it, and what stands after a `=`.
    """
    if not command:
        return ()
    program, *arguments = command
    found = [folder / program] if "/" in program else _in_path(program, folder)
    for argument in arguments:
        found += [folder / each for each in _words(argument) if _is_path(each, folder)]
    return tuple(sorted(set(found)))


def _in_path(program: str, folder: Path) -> list[Path]:
    """Those that are there; a folder of PATH that lacks it is protected with PATH."""
    folders = os.get_exec_path()
    return [each for each in (folder / place / program for place in folders) if each.exists()]


def _words(argument: str) -> Iterator[str]:
    try:
        words = shlex.split(argument)
    except ValueError:  # a quote that isn't closed
        words = argument.split()
    for word in {argument, *words}:
        yield word
        yield word.partition("=")[2]


def _is_path(word: str, folder: Path) -> bool:
    if not word or "\0" in word or "://" in word or set(word) <= {"/", "."}:
        return False
    return "/" in word or os.path.lexists(folder / word)


__all__ = ["command_files"]
