"""The file system inside, as the arguments that make bubblewrap build it, in the order in which it does."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path

from fumehood_sandbox import landlock
from fumehood_sandbox.grants import CheckedPolicy
from fumehood_sandbox.policy import Mount

SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - places inside
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}


def layout_arguments(checked: CheckedPolicy) -> list[str]:
    """Arguments for bubblewrap.

    The order protects the host. Bubblewrap makes missing mount points with the launcher's rights, following links,
    while the host's own root lies at /oldroot: a link to there in a folder that a plugin can write would let it make
    files anywhere (CVE-2026-87766). So every mount point is made first, and what a plugin may have written to is bound
    last, with nothing mounted beneath it afterwards.
    """
    grants = (*checked.read, *checked.write)
    targets = [mount.target for mount in checked.runtime] + [grant.path for grant in grants]
    return [
        *_folders_to(("/dev/null", *targets)),
        *_own_places(checked.policy.limits.scratch_bytes),
        *_folders_to(mount.target for mount in checked.runtime if mount.target.startswith(SCRATCH)),
        *(argument for mount in checked.runtime for argument in _runtime_mount(mount, checked.runtime)),
        *_folders_to(targets),  # once more, for grants that lie in /tmp or in a mount
        *(argument for grant in checked.write for argument in ("--perms", "0755", "--dir", grant.path)),
        *(argument for grant in checked.read for argument in ("--ro-bind-fd", str(grant.fd), grant.path)),
        *(argument for grant in checked.write for argument in ("--bind-fd", str(grant.fd), grant.path)),
        # Last, when nothing more is made in it: the root itself, which is a tmpfs without a limit.
        *("--remount-ro", "/"),
    ]


def landlock_ruleset(checked: CheckedPolicy, abi: int) -> landlock.Ruleset:
    """The same file system once more, as Landlock's rules."""
    return landlock.ruleset(
        abi,
        run=(mount.target for mount in checked.runtime if mount.source and not _is_link(mount, checked.runtime)),
        listing=("/",),
        read=("/proc", *(grant.path for grant in checked.read)),
        write=(*SCRATCH, *(grant.path for grant in checked.write)),
        devices=DEVICES,
    )


def _folders_to(targets: Iterable[str]) -> Iterator[str]:
    """Make the folders that lead to these places. Those that bubblewrap makes by itself are closed to all but root."""
    needed: set[str] = set()
    for target in targets:
        folder = posixpath.dirname(target)
        while folder != "/" and folder not in needed:
            needed.add(folder)
            folder = posixpath.dirname(folder)
    for folder in sorted(needed):
        yield from ("--perms", "0755", "--dir", folder)


def _own_places(scratch_bytes: int) -> Iterator[str]:
    yield from ("--proc", "/proc")
    # Not bubblewrap's --dev, which brings terminals: nine mounts for the five devices that a tool needs.
    for device in DEVICES:
        yield from ("--dev-bind", device, device)
    for link, target in _DEVICE_LINKS.items():
        yield from ("--symlink", target, link)
    for folder in SCRATCH:
        yield from ("--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", folder)


def _runtime_mount(mount: Mount, runtime: tuple[Mount, ...]) -> tuple[str, ...]:
    if not mount.source:
        return ("--perms", "0755", "--tmpfs", mount.target, "--remount-ro", mount.target)
    if _is_link(mount, runtime):
        return ("--symlink", str(Path(mount.source).readlink()), mount.target)
    return ("--ro-bind", mount.source, mount.target)


def _is_link(mount: Mount, runtime: tuple[Mount, ...]) -> bool:
    """Whether a mount is a link into other mounts, such as /lib to usr/lib: then a link inside will do."""
    if mount.source != mount.target or not os.path.islink(mount.source):  # noqa: PTH114 - on the way to every start
        return False
    real = os.path.realpath(mount.source) + "/"
    targets = [each.target + "/" for each in runtime if each is not mount]
    return any(real.startswith(target) or target.startswith(real) for target in targets)
