"""The check of a policy, against itself and this machine's files; each grant is pinned by an O_PATH descriptor."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from fumehood_sandbox.errors import PolicyError
from fumehood_sandbox.level import Level
from fumehood_sandbox.outside.runtime_mounts import python_runtime
from fumehood_sandbox.policy import Mount, Policy

_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
_OURS = ("/proc", "/dev", "/tmp", "/oldroot", "/newroot")  # noqa: S108 - places inside
_SMALLEST_SCRATCH_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PinnedGrant:
    """A granted path, held by a descriptor: what lies there is decided, whatever is put in its place later."""

    path: str
    """Without symbolic links."""
    fd: int
    is_folder: bool
    owner: int
    group: int
    mode: int


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """A policy whose parts don't contradict one another, with its grants open. The descriptors live in the stack."""

    policy: Policy
    runtime: tuple[Mount, ...]
    """The inner stage's needs first, then the policy's, without repetition."""
    read: tuple[PinnedGrant, ...]
    """None lies beneath another, or is granted for writing too."""
    write: tuple[PinnedGrant, ...]

    @property
    def run_written(self) -> tuple[str, ...]:
        """The paths of `write` in which programs may be run."""
        return tuple(grant.path for grant in self.write) if self.policy.runs_written else ()


def check_policy(policy: Policy, stack: ExitStack) -> CheckedPolicy:
    """Check everything about a policy that can be checked before anything starts.

    Raises:
        PolicyError: it contradicts itself or names what isn't there.
    """
    _check_level(policy)
    _check_limits(policy)
    _check_environment(policy)
    runtime = _without_repetition(tuple(dict.fromkeys((*python_runtime(), *policy.runtime))))
    _check_runtime(runtime)
    write = _outermost("write", (_pin("write", path, stack) for path in policy.write))
    read = _pinned_for_reading(policy, write, stack)
    for grant in write:
        if not grant.is_folder:
            raise PolicyError("write", f"{grant.path} is not a folder: grant the folder that it lies in")
        _check_nothing_beneath(grant.path, runtime, read)
    if not policy.working_directory.startswith("/"):
        raise PolicyError("working_directory", f"{policy.working_directory!r} is not absolute")
    return CheckedPolicy(policy, runtime, read, write)


def _check_level(policy: Policy) -> None:
    if policy.relay and not policy.level.allows(Level.EXTERNAL):
        raise PolicyError("relay", f"level {policy.level} reaches nothing: raise the level or drop the relay")
    if policy.read and not policy.level.allows(Level.READ):
        raise PolicyError(
            "read", f"level {policy.level} reads nothing of this machine: raise the level or drop the grant"
        )
    if policy.write and not policy.level.allows(Level.WRITE):
        raise PolicyError("write", f"level {policy.level} writes nothing: raise the level or drop the grant")


def _check_limits(policy: Policy) -> None:
    for name in policy.limits.__dataclass_fields__:
        value = getattr(policy.limits, name)
        if not 0 < value < 1 << 62:
            raise PolicyError(f"limits.{name}", f"{value} is not a positive number")
    if policy.limits.scratch_bytes < _SMALLEST_SCRATCH_BYTES:
        raise PolicyError("limits.scratch_bytes", f"must be at least {_SMALLEST_SCRATCH_BYTES}")


def _check_environment(policy: Policy) -> None:
    for name, value in policy.environment:
        if not name or "=" in name or "\0" in name + value:
            raise PolicyError("environment", f"{name!r} can't be an environment variable")


def _check_runtime(runtime: Iterable[Mount]) -> None:
    for mount in runtime:
        for what, path in (("source", mount.source), ("target", mount.target)):
            if path or what == "target":
                _check_path(f"runtime {what}", path)
        if mount.target == "/" or is_within(mount.target, _OURS[:2]) or mount.target in _OURS:
            raise PolicyError("runtime", f"nothing can be mounted at {mount.target}: that place is the sandbox's own")
        if mount.source in {"", "/"}:
            if mount.source:
                raise PolicyError("runtime", "the whole file system can't be shown: name the folders that are needed")
        elif not os.path.exists(mount.source):  # noqa: PTH110 - many, on the way to every start
            raise PolicyError("runtime", f"{mount.source} does not exist")


def _without_repetition(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Leave out what another mount shows at the same place anyway. Each mount costs every start 0.1 ms."""
    plain = {mount.target for mount in mounts if mount.source == mount.target}
    moved = tuple(mount.target for mount in mounts if mount.source != mount.target)

    def is_repeated(mount: Mount) -> bool:
        if mount.source != mount.target or is_within(mount.target, moved):
            return False
        return any(above in plain for above in _folders_above(mount.target))

    return tuple(mount for mount in mounts if not is_repeated(mount))


def _folders_above(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _check_path(field: str, path: str) -> None:
    if not path.startswith("/"):
        raise PolicyError(field, f"{path!r} is not absolute")
    if "\0" in path or posixpath.normpath(path) != path.rstrip("/") or path.startswith("//"):
        if path == "/":
            return
        raise PolicyError(field, f"{path!r} is not plain: give it without '.', '..', doubled slashes or NUL")


def _pin(field: str, path: str, stack: ExitStack) -> PinnedGrant:
    """Open what lies at this very path.

    A link is refused, not resolved: one that is in the place of a granted folder now may have been put there by a
    program that can write to the folder around it, and would turn the grant into one for whatever it leads to.
    """
    if not path.startswith("/") or "\0" in path:
        raise PolicyError(field, f"{path!r} is not absolute")
    path = posixpath.normpath(path) if ".." not in path.split("/") else path
    real = os.path.realpath(path)
    if real != path:
        raise PolicyError(field, f"{path} is, or lies behind, a symbolic link: if {real} is meant, grant that")
    if real == "/" or is_within(real, _KERNEL_FOLDERS):
        raise PolicyError(field, f"{path} can't be granted: it reaches the whole machine")
    fd = -1
    try:
        # Step by step without following links, so that none put there since realpath() leads elsewhere.
        fd = _open_without_links(real)
        stack.callback(os.close, fd)
        found = os.fstat(fd)
    except OSError as error:
        raise PolicyError(field, f"{path} can't be opened: {error.strerror}") from error
    is_folder = stat.S_ISDIR(found.st_mode)
    if not is_folder and not stat.S_ISREG(found.st_mode):
        raise PolicyError(field, f"{path} is neither a file nor a folder: sockets, pipes and devices can't be granted")
    return PinnedGrant(real, fd, is_folder, found.st_uid, found.st_gid, found.st_mode)


def _open_without_links(path: str) -> int:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags | os.O_DIRECTORY)
    parts = path.strip("/").split("/")
    for index, part in enumerate(parts):
        try:
            below = os.open(part, flags | (os.O_DIRECTORY if index < len(parts) - 1 else 0), dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _pinned_for_reading(policy: Policy, write: tuple[PinnedGrant, ...], stack: ExitStack) -> tuple[PinnedGrant, ...]:
    """What is granted for writing can be read in any case; a path within a folder granted for reading likewise."""
    writable = {grant.path for grant in write}
    pinned = [_pin("read", path, stack) for path in policy.read]
    kept: list[PinnedGrant] = []
    for grant in sorted(pinned, key=lambda grant: grant.path):
        if grant.path not in writable and not is_within(grant.path, tuple(each.path for each in kept)):
            kept.append(grant)
    return tuple(kept)


def _outermost(field: str, grants: Iterable[PinnedGrant]) -> tuple[PinnedGrant, ...]:
    ordered = sorted({grant.path: grant for grant in grants}.values(), key=lambda grant: grant.path)
    for above, below in _pairs(ordered):
        if is_within(below.path, (above.path,)):
            raise PolicyError(field, f"{below.path} lies beneath {above.path}, which is granted already")
    return tuple(ordered)


def _pairs(grants: list[PinnedGrant]) -> Iterator[tuple[PinnedGrant, PinnedGrant]]:
    return ((above, below) for index, above in enumerate(grants) for below in grants[index + 1 :])


def _check_nothing_beneath(path: str, runtime: Iterable[Mount], read: Iterable[PinnedGrant]) -> None:
    """A mount point beneath a writable folder could be a link that the plugin left there, to anywhere outside."""
    for target in (*(mount.target for mount in runtime), *(grant.path for grant in read)):
        if is_within(target, (path,)):
            raise PolicyError(
                "write", f"{target} must be mounted beneath {path}, which is writable: grant a narrower folder"
            )
    for place in ("/tmp", "/dev/shm", "/run"):  # noqa: S108 - places inside
        if path == place:
            raise PolicyError("write", f"{path} is the sandbox's own place: grant a folder in it")


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders, or lies in one, by their names alone."""
    return any(path == folder or path.startswith(folder + "/") for folder in folders)
