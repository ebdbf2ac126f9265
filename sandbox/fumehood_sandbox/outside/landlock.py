"""What Landlock is told: which access is handled, and what is allowed where.

The rules are made here, outside; the inner stage only carries them out. Source: landlock(7), linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_SYS_CREATE_RULESET = 444
_CREATE_RULESET_VERSION = 1

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15
_HIGHEST_FS_BIT_OF_ABI = {1: 12, 2: 13, 3: 14, 4: 14, 5: 15}
"""ABI 2 added moves between folders, 3 truncation, 5 ioctl on devices. Later ones, up to 7, added none."""
_NET_TCP_BIND_AND_CONNECT = 0b11
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_ABI_WITH_NET = 4
_ABI_WITH_SCOPES = 6

READ = _READ_FILE | _READ_DIR
RUN = READ | _EXECUTE
DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEVICE
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
    answer = int(syscall(ctypes.c_long(_SYS_CREATE_RULESET), None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION))
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
    everything_but_devices_and_programs = handled & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEVICE)
    net = _NET_TCP_BIND_AND_CONNECT if abi >= _ABI_WITH_NET else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if abi >= _ABI_WITH_SCOPES else 0
    if abi >= _ABI_WITH_SCOPES:
        attributes = struct.pack("=QQQ", handled, net, scopes)
    elif abi >= _ABI_WITH_NET:
        attributes = struct.pack("=QQ", handled, net)
    else:
        attributes = struct.pack("=Q", handled)
    allowed: dict[str, int] = {}
    uses = (
        (listing, _READ_DIR),
        (run, RUN),
        (read, READ),
        (write, everything_but_devices_and_programs),
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
        return struct.pack("=QQQ", 0, 0, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    return struct.pack("=Q", _MAKE_CHAR | _MAKE_BLOCK)


def _parents(path: str) -> Iterable[str]:
    while path not in {"/", ""}:
        path = os.path.dirname(path)  # noqa: PTH120 - many short strings, on the way to every start
        yield path
