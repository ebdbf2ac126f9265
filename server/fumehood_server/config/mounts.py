"""Mounts, by /proc/self/mountinfo (proc_pid_mountinfo(5)): one file has as many paths as it is mounted in places.

Each mount names its file system, and which folder or file of that it shows. Those two and the rest of a path name a
file whatever its path is. An overlay is a file system of its own: the folders that it is made of are not told.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _Mount:
    number: bytes
    parent: bytes
    device: bytes
    """Of the file system, as `major:minor`. Not st_dev, which differs between subvolumes of btrfs."""
    root: Path
    """The folder or file of the file system that is shown."""
    point: Path


class MountTable:
    """What is mounted where."""

    def __init__(self, mountinfo: bytes) -> None:
        """`mountinfo` is the content of that file. It lacks the root in a chroot: what lies there has one path then."""
        self._mounts = [_mount(line) for line in mountinfo.splitlines()]
        # The first of a namespace can be its own parent.
        self._upon = {(each.parent, each.point): each for each in self._mounts if each.parent != each.number}
        numbers = {each.number for each in self._mounts}
        tops = [each for each in self._mounts if each.parent not in numbers or each.parent == each.number]
        outside = _Mount(tops[0].parent if tops else b"", b"", b"", Path("/"), Path("/"))
        self._root = next((each for each in tops if each.point == Path("/")), outside)
        self._known: dict[tuple[Path, bool], tuple[tuple[bytes, Path], ...]] = {}

    def overlap(self, path: Path, other: Path, *, within: bool = True) -> bool:
        """Whether `other`, or where `within` a file beneath it, is at or beneath `path` by whatever other path.

        What is mounted beneath them counts. Both are absolute, without symlinks, and need not exist.
        """
        return any(
            device == other_device
            and (other_place.is_relative_to(place) or (within and place.is_relative_to(other_place)))
            for device, place in self._places(path, within=True)
            for other_device, other_place in self._places(other, within=within)
        )

    def holds(self, folder: Path, path: Path) -> bool:
        """Whether the folder has what lies at the path, by its name there or by another path. Both as for `overlap`."""
        return path.is_relative_to(folder) or self.overlap(folder, path, within=False)

    def _places(self, path: Path, *, within: bool) -> tuple[tuple[bytes, Path], ...]:
        """File systems and places in them: the path's own, and where `within` those mounted beneath and not hidden."""
        found = self._known.get((path, within))
        if found is None:
            mount, beneath = self._holding(path), os.path.join(path, "")  # noqa: PTH118 - with a slash at its end
            mounts = [each for each in self._mounts if str(each.point).startswith(beneath)] if within else []
            visible = [(each.device, each.root) for each in mounts if self._holding(each.point) is each]
            found = ((mount.device, mount.root / path.relative_to(mount.point)), *visible)
            self._known[path, within] = found
        return found

    def _holding(self, path: Path) -> _Mount:
        """The mount that the kernel finds the path in: it goes from each mount to those upon it."""
        mount = self._root
        for each in (*reversed(path.parents), path):
            while (mount.number, each) in self._upon:
                mount = self._upon[mount.number, each]
        return mount


def read_mounts() -> MountTable:
    """What is mounted where for this process.

    Without /proc, where no sandbox can be made either, nothing is known to have another path.
    """
    try:
        return _table(Path("/proc/self/mountinfo").read_bytes())
    except OSError:
        return _table(b"")


_table = lru_cache(maxsize=1)(MountTable)
"""One is made for all grants of a configuration."""


def _mount(line: bytes) -> _Mount:
    number, parent, device, root, point, *_ = line.split(b" ")
    return _Mount(number, parent, device, _path(root), _path(point))


def _path(field: bytes) -> Path:
    return Path(os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field)))


__all__ = ["MountTable", "read_mounts"]
