"""The choice of idmapped mounts: which grants and runtime files need one, and with which user namespace."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from fumehood_sandbox.outside.grants import CheckedPolicy
from fumehood_sandbox.outside.identity import Identity, owner_namespace

_READABLE = stat.S_IROTH | stat.S_IXOTH
_WRITABLE = _READABLE | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class IdmappedMount:
    """One path of which a stage makes an idmapped mount."""

    path: str
    fd: int
    """What lies there (O_PATH)."""
    user_namespace_fd: int
    """The namespace whose map shows the owner as the program's user."""


def idmapped_mounts(checked: CheckedPolicy, identity: Identity, stack: ExitStack) -> Iterator[IdmappedMount]:
    """What the program's user could not use as it is. Descriptors that are opened for it go to the stack.

    Only where that isn't the launcher's own user. What root's umask closed to everybody else is opened by showing its
    owner as the program's user; what lies deeper and is closed once more has the same owner, as a rule.
    """
    if identity.user_namespace_fd is None:
        return
    grants = ((checked.read, _READABLE), (checked.write, _WRITABLE))
    for pinned, needed in grants:
        for grant in pinned:
            if grant.owner != identity.user and not _has(grant.mode, needed):
                yield IdmappedMount(grant.path, grant.fd, owner_namespace(grant.owner, grant.group, identity))
    for mount in checked.runtime:
        if mount.source:
            found = os.stat(mount.source)  # noqa: PTH116 - many, on the way to every start
            if found.st_uid != identity.user and not _has(found.st_mode, _READABLE):
                real = os.path.realpath(mount.source)
                fd = os.open(real, os.O_PATH | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                yield IdmappedMount(real, fd, owner_namespace(found.st_uid, found.st_gid, identity))


def _has(mode: int, needed: int) -> bool:
    """Whether everybody has these rights. Only folders need the right to be entered."""
    wanted = needed if stat.S_ISDIR(mode) else needed & ~stat.S_IXOTH
    return mode & wanted == wanted
