"""Symlinks on the way to a path (path_resolution(7)): whoever replaces one decides what the path leads to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MAX_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """What names lead to. Absolute and sorted."""

    paths: tuple[Path, ...]
    """Without symlinks."""
    links: tuple[Path, ...]
    """Each symlink on the way there."""


def found_paths(named: Iterable[str]) -> FoundPaths:
    """What the names lead to. An empty one is the current folder, as in `sys.path`. None need exist."""
    places = {named_place(each) for each in named}
    return FoundPaths(
        paths=tuple(sorted({Path(os.path.realpath(each)) for each in places})),
        links=tuple(sorted({link for each in places for link in links_in_path(each)})),
    )


def links_in_path(path: Path) -> Iterator[Path]:
    """Every symlink that resolving the absolute path goes through, each as its own path without symlinks."""
    left = list(reversed(path.parts[1:]))
    real = Path("/")
    found = 0
    while left and found < _MAX_LINKS:
        part = left.pop()
        place = real.parent if part == ".." else real / part
        try:
            target = place.readlink()
        except (OSError, ValueError):  # no symlink, or none that this user could follow: a home behind ProtectHome=
            real = place
            continue
        found += 1
        yield place
        left.extend(reversed([each for each in target.parts if each != "/"]))
        real = Path("/") if target.is_absolute() else real


def named_place(name: str) -> Path:
    """The name as an absolute path, with its symlinks. A relative one starts at the current folder as the shell has it.

    The kernel knows that folder without the symlinks by which a shell came there, and will come there the next time.
    """
    if os.path.isabs(name):  # noqa: PTH117 - of very many
        return Path(name)
    current = os.environ.get("PWD", "")
    try:
        is_current = os.path.isabs(current) and os.path.samefile(current, ".")  # noqa: PTH117, PTH121 - of strings
    except OSError:
        is_current = False
    return Path(current if is_current else os.getcwd(), name)  # noqa: PTH109 - a string as well


__all__ = ["FoundPaths", "found_paths", "links_in_path", "named_place"]
