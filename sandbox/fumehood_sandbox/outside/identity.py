"""User ids and user namespaces of sandboxed programs.

Not root: the launcher's own user, in a user namespace that bwrap makes. Root: a user of the policy's own identity,
from a range that nobody else uses, in a user namespace that this module makes once for the launcher's process.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox.errors import SandboxUnavailableError

_FIRST_ID = 0x70000000
"""The start of the range that systemd's list of user ids (systemd.io/UIDS-GIDS) leaves unused: from 1879048192 up."""
_ID_BITS = 24
_FIRST_ID_OF_SMALL_MAP = 10_000
_NOBODY = 65534
_HELPER = """
import _ctypes, os, sys
libc = _ctypes.dlopen(None, 0)
sys.stdout.write("%d\\n" % _ctypes.call_function(_ctypes.dlsym(libc, "unshare"), (0x10000000,)))
sys.stdout.flush()
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user and group of one sandboxed process."""

    user: int
    group: int
    user_namespace_fd: int | None
    """The launcher's shared namespace, or None when bwrap makes one. Owned by this module; never close it."""


class _Namespaces:
    """User namespaces that were made for this process, by their maps. Each is held by its descriptor alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fds: dict[tuple[str, str], int] = {}
        self._owner = 0

    def fd(self, uid_map: str, gid_map: str) -> int:
        """A namespace with these maps, in the format of user_namespaces(7). Owned here; never close it."""
        with self._lock:
            if self._owner != os.getpid():  # after a fork the descriptors are good, but the other process's to close
                self._owner, self._fds = os.getpid(), {}
            key = (uid_map, gid_map)
            if key not in self._fds:
                self._fds[key] = _make_namespace(uid_map, gid_map)
            return self._fds[key]


_namespaces = _Namespaces()
_taken: dict[int, str] = {}
_taken_lock = threading.Lock()


def identity_for(name: str) -> Identity:
    """The identity of processes of this name.

    Raises:
        SandboxUnavailableError: the launcher is root and can't give the process another user.
    """
    if os.geteuid() != 0:
        return Identity(os.geteuid(), os.getegid(), None)
    chosen = _choose(name, _mapped_ranges("/proc/self/uid_map"))
    same_ids = (_ranges_mapped_to_themselves("/proc/self/uid_map"), _ranges_mapped_to_themselves("/proc/self/gid_map"))
    return Identity(chosen, chosen, _namespaces.fd(*same_ids))


def user_for(name: str) -> tuple[int, int] | None:
    """User and group of processes of this name where there are no namespaces; None: the launcher's own.

    Raises:
        SandboxUnavailableError: the launcher is root and has no other users.
    """
    if os.geteuid() != 0:
        return None
    chosen = _choose(name, _mapped_ranges("/proc/self/uid_map"))
    return chosen, chosen


def owner_namespace(user: int, group: int, identity: Identity) -> int:
    """A user namespace that makes an idmapped mount show this owner as the identity. Don't close it."""
    return _namespaces.fd(f"{user} {identity.user} 1\n", f"{group} {identity.group} 1\n")


def _choose(name: str, ranges: list[tuple[int, int, int]]) -> int:
    """An id for a name: the same one each time, and never two names' in one process."""
    first, count = _free_range(ranges)
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % count
    with _taken_lock:
        for step in range(count):
            candidate = first + (start + step) % count
            if candidate != _NOBODY and _taken.setdefault(candidate, name) == name:
                return candidate
    raise SandboxUnavailableError("identity", f"all {count} user ids are taken", "give the container more user ids")


def _free_range(ranges: list[tuple[int, int, int]]) -> tuple[int, int]:
    for inside, _, count in ranges:
        if inside <= _FIRST_ID and inside + count >= _FIRST_ID + (1 << _ID_BITS):
            return _FIRST_ID, 1 << _ID_BITS
    # A container with a small map: the largest stretch above the ids that its own users have.
    stretches = [
        (inside + count - max(inside, _FIRST_ID_OF_SMALL_MAP), max(inside, _FIRST_ID_OF_SMALL_MAP))
        for inside, _, count in ranges
    ]
    length, first = max(stretches, default=(0, 0))
    if length <= 0:
        raise SandboxUnavailableError(
            "identity",
            "the launcher is root of a user namespace that has no other user ids",
            "run it as an ordinary user, or map at least 65536 ids (newuidmap, subuid)",
        )
    return first, length


def _mapped_ranges(path: str) -> list[tuple[int, int, int]]:
    lines = Path(path).read_text(encoding="ascii").splitlines()
    return [(int(inside), int(outside), int(count)) for inside, outside, count in (line.split() for line in lines)]


def _ranges_mapped_to_themselves(path: str) -> str:
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in _mapped_ranges(path))


def _make_namespace(uid_map: str, gid_map: str) -> int:
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HELPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
    )
    with helper:
        try:
            return _map_namespace_of(helper, uid_map, gid_map)
        except OSError as error:
            raise SandboxUnavailableError(
                "user namespace",
                f"root can't map ids into a new one: {error}",
                "allow CAP_SETUID and CAP_SETGID, or run the sidecar as an ordinary user",
            ) from error
        finally:
            helper.kill()


def _map_namespace_of(helper: subprocess.Popen[bytes], uid_map: str, gid_map: str) -> int:
    assert helper.stdout is not None  # noqa: S101 - it was asked for above
    if helper.stdout.readline().strip() != b"0":
        raise SandboxUnavailableError(
            "user namespace",
            "the kernel refuses to make one",
            "allow unshare(CLONE_NEWUSER): container seccomp profile, sysctl user.max_user_namespaces",
        )
    folder = Path("/proc") / str(helper.pid)
    (folder / "uid_map").write_text(uid_map, encoding="ascii")
    (folder / "gid_map").write_text(gid_map, encoding="ascii")
    return os.open(folder / "ns" / "user", os.O_RDONLY | os.O_CLOEXEC)
