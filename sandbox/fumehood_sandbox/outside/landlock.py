"""Landlock rule sets: which access is handled, and what is allowed where.

The rules are made here, outside; the inner stage only carries them out. Source: landlock(7), linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from fumehood_sandbox.kernel.constants import (
    LANDLOCK_ACCESS_FS_EXECUTE,
    LANDLOCK_ACCESS_FS_IOCTL_DEV,
    LANDLOCK_ACCESS_FS_MAKE_BLOCK,
    LANDLOCK_ACCESS_FS_MAKE_CHAR,
    LANDLOCK_ACCESS_FS_READ_DIR,
    LANDLOCK_ACCESS_FS_READ_FILE,
    LANDLOCK_ACCESS_FS_WRITE_FILE,
    LANDLOCK_ACCESS_NET_BIND_TCP,
    LANDLOCK_ACCESS_NET_CONNECT_TCP,
    LANDLOCK_CREATE_RULESET_VERSION,
    LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET,
    LANDLOCK_SCOPE_SIGNAL,
    SYS_LANDLOCK_CREATE_RULESET,
)

_HIGHEST_FS_BIT_OF_ABI = {1: 12, 2: 13, 3: 14, 4: 14, 5: 15}
"""ABI 2 added moves between folders, 3 truncation, 5 ioctl on devices. Later ones, up to 7, added none."""
_MAKE_DEVICE = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK
_NET_TCP = LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP
_SCOPES = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL
_ABI_WITH_NET = 4
_ABI_WITH_SCOPES = 6

READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR
RUN = READ | LANDLOCK_ACCESS_FS_EXECUTE
DEVICE = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_IOCTL_DEV
"""With ioctl, so that a program that asks one of the few devices "are you a terminal?" hears a plain no."""


@dataclass(frozen=True, slots=True)
class Ruleset:
    """A rule set for one ABI, ready to be handed to the kernel."""

    attributes: bytes
    """`struct landlock_ruleset_attr`, as long as this ABI knows it."""
    rules: tuple[tuple[str, int], ...]
    """Path inside, and the access allowed beneath it."""
    detail: str


@functools.cache
def supported_abi() -> int:
    """The kernel's Landlock ABI, 0 when there is none."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    # A null attribute of size 0 with this flag asks for the version and makes nothing.
    answer = int(
        syscall(ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION)
    )
    return max(answer, 0)


def ruleset(
    abi: int,
    *,
    listing: Iterable[str],
    run: Iterable[str],
    read: Iterable[str],
    write: Iterable[str],
    devices: Iterable[str],
) -> Ruleset:
    """Deny all that this ABI can deny, except these paths for these uses. Everything beneath a path counts."""
    highest = _HIGHEST_FS_BIT_OF_ABI[min(abi, max(_HIGHEST_FS_BIT_OF_ABI))]
    handled = (1 << highest + 1) - 1
    writable = handled & ~(LANDLOCK_ACCESS_FS_EXECUTE | _MAKE_DEVICE | LANDLOCK_ACCESS_FS_IOCTL_DEV)
    net = _NET_TCP if abi >= _ABI_WITH_NET else 0
    scopes = _SCOPES if abi >= _ABI_WITH_SCOPES else 0
    if abi >= _ABI_WITH_SCOPES:
        attributes = struct.pack("=QQQ", handled, net, scopes)
    elif abi >= _ABI_WITH_NET:
        attributes = struct.pack("=QQ", handled, net)
    else:
        attributes = struct.pack("=Q", handled)
    allowed: dict[str, int] = {}
    uses = (
        (listing, LANDLOCK_ACCESS_FS_READ_DIR),
        (run, RUN),
        (read, READ),
        (write, writable),
        (devices, DEVICE),
    )
    for paths, access in uses:
        for path in paths:
            allowed[path] = allowed.get(path, 0) | access & handled
    # A rule says nothing new where one for a folder above allows as much.
    rules = tuple(
        (path, access)
        for path, access in allowed.items()
        if not any(allowed.get(above, 0) & access == access for above in _parents(path))
    )
    parts = ["file system", *(["TCP"] if net else []), *(["signals and abstract sockets"] if scopes else [])]
    return Ruleset(attributes, rules, f"ABI {abi}: {', '.join(parts)}; {len(rules)} rules")


def scopes_only(abi: int) -> bytes:
    """`struct landlock_ruleset_attr` of a domain beneath another one, which tells its members from those around them.

    Members of a domain can't trace who is outside of it, and from ABI 6 on can't signal them either. Before that a
    domain must deny something of files: what the other one denies already.
    """
    if abi >= _ABI_WITH_SCOPES:
        return struct.pack("=QQQ", 0, 0, _SCOPES)
    return struct.pack("=Q", _MAKE_DEVICE)


def _parents(path: str) -> Iterable[str]:
    while path not in {"/", ""}:
        path = os.path.dirname(path)  # noqa: PTH120 - many short strings, on the way to every start
        yield path
