"""bubblewrap's arguments: namespaces, capabilities, filter, and the mounts in the order in which it makes them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fumehood_sandbox.outside import landlock
from fumehood_sandbox.outside.bubblewrap import unshare_flags
from fumehood_sandbox.outside.grants import CheckedPolicy, is_within
from fumehood_sandbox.outside.identity import Identity
from fumehood_sandbox.policy import Mount

SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - places inside
FORK_SCRATCH_PARENT = "/run/fumehood/scratch"
FORK_SCRATCH = (f"{FORK_SCRATCH_PARENT}/tmp", f"{FORK_SCRATCH_PARENT}/shm")  # noqa: S108 - likewise
"""Where scratch lies in a sandbox that forks; `SCRATCH` are links to there.

A rule of Landlock's belongs to an inode. Each child has file systems of its own on these two folders, which are newer
than every rule; what allows writing to them is a rule for the folder above, and nothing else is in that.
"""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}


def bubblewrap_arguments(
    checked: CheckedPolicy, identity: Identity, *, filter_fd: int, info_fd: int, forks: bool
) -> list[str]:
    """All that bubblewrap is told, but for the command. `forks`: a zygote runs in the sandbox."""
    shared = identity.user_namespace_fd is not None
    return [
        *unshare_flags(shared_user_namespace=shared),
        *(("--userns", str(identity.user_namespace_fd)) if shared else ()),
        *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"),
        # A symbol that is looked up at its first use would be looked up by each child anew.
        *(("--setenv", "LD_BIND_NOW", "1") if forks else ()),
        # What the inner stage needs to limit scratch, to take on its identity and to empty the bounding set; it gives
        # all of it up. Of mount(2) the filter lets it do nothing else: see `seccomp.denylist`.
        *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"),
        *(("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID") if shared else ()),
        *("--seccomp", str(filter_fd), "--info-fd", str(info_fd)),
        *_mount_arguments(checked, forks=forks),
    ]


def _mount_arguments(checked: CheckedPolicy, *, forks: bool) -> list[str]:
    """The file system, in the order in which it is built.

    The order protects the host. Bubblewrap makes missing mount points with the launcher's rights, following links,
    while the host's own root lies at /oldroot: a link to there in a folder that a plugin can write would let it make
    files anywhere (CVE-2026-87766). So every mount point is made first, and what a plugin may have written to is bound
    last, with nothing mounted beneath it afterwards.
    """
    at = _relocated if forks else str
    grants = (*checked.read, *checked.write)
    targets = [at(mount.target) for mount in checked.runtime] + [at(grant.path) for grant in grants]
    return [
        *_folders_to(("/dev/null", *targets)),
        *_own_mounts(checked.policy.limits.scratch_bytes, forks=forks),
        *_folders_to(at(mount.target) for mount in checked.runtime if mount.target.startswith(SCRATCH)),
        *(argument for mount in checked.runtime for argument in _runtime_mount(mount, checked.runtime, at)),
        *_folders_to(targets),  # once more, for grants that lie in /tmp or in a mount
        *(argument for grant in checked.write for argument in ("--perms", "0755", "--dir", at(grant.path))),
        *(argument for grant in checked.read for argument in ("--ro-bind-fd", str(grant.fd), at(grant.path))),
        *(argument for grant in checked.write for argument in ("--bind-fd", str(grant.fd), at(grant.path))),
        # Last, when nothing more is made in it: the root itself, which is a tmpfs without a limit.
        *("--remount-ro", "/"),
    ]


def landlock_ruleset(checked: CheckedPolicy, abi: int, *, forks: bool = False) -> landlock.Ruleset:
    """The same file system once more, as Landlock's rules."""
    return landlock.ruleset(
        abi,
        run=(
            *(mount.target for mount in checked.runtime if mount.source and not _is_link(mount, checked.runtime)),
            *checked.run_written,
        ),
        listing=("/",),
        read=("/proc", *(grant.path for grant in checked.read)),
        write=(*((FORK_SCRATCH_PARENT,) if forks else SCRATCH), *(grant.path for grant in checked.write)),
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


def _relocated(path: str) -> str:
    """Where a path lies that programs find at the same place as ever, by a link."""
    for link, folder in zip(SCRATCH, FORK_SCRATCH, strict=True):
        if path == link or path.startswith(link + "/"):
            return folder + path[len(link) :]
    return path


def below_scratch(checked: CheckedPolicy) -> list[str]:
    """Where, in a sandbox that forks, mounts lie within scratch: each child's own scratch must show them again."""
    paths = [mount.target for mount in checked.runtime if mount.source]
    paths += [grant.path for grant in (*checked.read, *checked.write)]
    found = sorted({_relocated(path) for path in paths if path.startswith(tuple(each + "/" for each in SCRATCH))})
    return [path for path in found if not any(path.startswith(above + "/") for above in found)]


def _own_mounts(scratch_bytes: int, *, forks: bool) -> Iterator[str]:
    yield from ("--proc", "/proc")
    # Not bubblewrap's --dev, which brings terminals: nine mounts for the five devices that a tool needs.
    for device in DEVICES:
        yield from ("--dev-bind", device, device)
    for link, target in _DEVICE_LINKS.items():
        yield from ("--symlink", target, link)
    if forks:
        yield from _folders_to(FORK_SCRATCH)
        for link, folder in zip(SCRATCH, FORK_SCRATCH, strict=True):
            yield from ("--symlink", folder, link)
    for folder in FORK_SCRATCH if forks else SCRATCH:
        yield from ("--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", folder)


def _runtime_mount(mount: Mount, runtime: tuple[Mount, ...], at: Callable[[str], str]) -> tuple[str, ...]:
    target = at(mount.target)
    if not mount.source:
        # With places for empty folders within it: nothing can be made there once it is read-only.
        inner = (
            f"{at(each.target)}/" for each in runtime if not each.source and is_within(each.target, (mount.target,))
        )
        return ("--perms", "0755", "--tmpfs", target, *_folders_to(inner), "--remount-ro", target)
    if _is_link(mount, runtime):
        return ("--symlink", str(Path(mount.source).readlink()), target)
    return ("--ro-bind", mount.source, target)


def _is_link(mount: Mount, runtime: tuple[Mount, ...]) -> bool:
    """Whether a mount is a link into other mounts, such as /lib to usr/lib: then a link inside will do."""
    if mount.source != mount.target or not os.path.islink(mount.source):  # noqa: PTH114 - on the way to every start
        return False
    real = os.path.realpath(mount.source) + "/"
    targets = [each.target + "/" for each in runtime if each is not mount]
    return any(real.startswith(target) or target.startswith(real) for target in targets)
