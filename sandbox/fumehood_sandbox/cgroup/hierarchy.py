"""cgroup hierarchies: where they are mounted, and this process's own cgroup in each. Nothing is decided here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_UNIFIED: frozenset[str] = frozenset()
"""How /proc/self/cgroup names version 2."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy."""

    version: int
    """1 or 2, by the file system's type."""
    controllers: frozenset[str]
    """Of version 1: those that are bound to it. Of version 2: none, since each folder of it says what it has."""
    folders: tuple[str, ...]
    """Where leaves may be tried, best first: this process's own cgroup, then others that may have been given to it."""


def hierarchies() -> tuple[Hierarchy, ...]:
    """Every hierarchy that is mounted here, version 2 first. Source: proc_pid_mountinfo(5), cgroups(7)."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    return parse(mounts.splitlines(), own.splitlines())


def parse(mountinfo: Iterable[str], cgroup: Iterable[str]) -> tuple[Hierarchy, ...]:
    """What the lines of /proc/self/mountinfo and /proc/self/cgroup say."""
    own: dict[frozenset[str], str] = {}
    for line in cgroup:
        _, names, path = line.split(":", 2)
        own[frozenset(filter(None, names.split(",")))] = path
    found: dict[tuple[int, frozenset[str]], Hierarchy] = {}
    for line in mountinfo:
        before, _, after = line.partition(" - ")
        root, mount_point = (_unescaped(field) for field in before.split()[3:5])
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            folders = tuple(_distinct(_candidates_of_2(mount_point, root, own.get(_UNIFIED, "/"))))
            found.setdefault((2, _UNIFIED), Hierarchy(2, _UNIFIED, folders))
        elif kind == "cgroup":
            named = frozenset(options.split(","))
            controllers = next((each for each in own if each and each <= named), None)
            if controllers is not None:
                own_folder = _folder_of(mount_point, root, own[controllers])
                folders = tuple(_distinct((own_folder, mount_point)))
                found.setdefault((1, controllers), Hierarchy(1, controllers, folders))
    return tuple(sorted(found.values(), key=lambda each: -each.version))


def _candidates_of_2(mount_point: str, root: str, own: str) -> Iterator[str]:
    """Our own cgroup; its parent, of which systemd's DelegateSubgroup= makes us a child; the mount's root."""
    own_folder = _folder_of(mount_point, root, own)
    yield own_folder
    if own_folder != mount_point:
        yield os.path.dirname(own_folder)  # noqa: PTH120 - plain text, like the rest
    yield mount_point


def _folder_of(mount_point: str, root: str, own: str) -> str:
    """The folder of a cgroup beneath a mount that shows the hierarchy from `root` down. The mount itself if outside."""
    if own == root:
        return mount_point
    prefix = root.rstrip("/") + "/"
    below = own[len(prefix) :] if own.startswith(prefix) else ""
    return mount_point if not below or ".." in below.split("/") else f"{mount_point.rstrip('/')}/{below}"


def _distinct(folders: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(folders)


def _unescaped(field: str) -> str:
    """The kernel writes blanks, tabs, line ends and backslashes as octal."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        field = field.replace(code, chr(int(code[1:], 8)))
    return field
