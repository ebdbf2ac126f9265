"""The stage of idmapped mounts: makes granted folders belong to the program's user, then becomes bubblewrap.

Only where the launcher is root and a grant is owned by somebody else than the program's user. It works in a mount
namespace of its own, so nothing of it is seen outside. Like the inner stage it is run by `python -I -S` and takes
nothing but `kernel`.
"""

import os
import sys

from fumehood_sandbox.inside.report import report
from fumehood_sandbox.kernel.constants import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_RECURSIVE,
    CLONE_NEWNS,
    MOUNT_ATTR_IDMAP,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOVE_MOUNT_F_EMPTY_PATH,
    MS_PRIVATE,
    MS_REC,
    OPEN_TREE_CLONE,
    STAGE_FAILED_STATUS,
    SYS_MOUNT_SETATTR,
    SYS_MOVE_MOUNT,
    SYS_OPEN_TREE,
)
from fumehood_sandbox.kernel.libc import StepError, call, restore_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEP = "idmapped mount"
"""Its step in errors."""


def main(config: "dict[str, Any]") -> None:
    """Map each grant, then execute bubblewrap. Never comes back."""
    status: int = config["status_fd"]
    try:
        # Cloned before the namespace is left: the descriptors' mounts belong to the launcher's.
        trees = [(path, _mapped_tree(fd, namespace, path)) for path, fd, namespace in config["grants"]]
        call(STEP, "unshare", CLONE_NEWNS, what="new mount namespace")
        call(STEP, "mount", b"none\0", b"/\0", 0, MS_REC | MS_PRIVATE, 0, what="make mounts private")
        for path, tree in trees:
            # What a link there could lead to doesn't matter: bubblewrap binds this path only if it finds the inode that
            # the grant's descriptor has.
            arguments = (tree, b"\0", AT_FDCWD, os.fsencode(path) + b"\0", MOVE_MOUNT_F_EMPTY_PATH)
            call(STEP, "syscall", SYS_MOVE_MOUNT, *arguments, what="attach", path=path)
            os.close(tree)
        restore_signals()
        os.execve(config["command"][0], config["command"], {})  # noqa: S606 - no shell is the point
    except StepError as error:
        report(status, "error", *error.fields)
    except OSError as error:
        report(status, "error", "bubblewrap", error.strerror or "", config["command"][0], str(error.errno or 0))
    os._exit(STAGE_FAILED_STATUS)


def _mapped_tree(fd: int, namespace: int, path: str) -> int:
    """A detached copy of the mount on which the grant's owner is the program's user."""
    flags = OPEN_TREE_CLONE | AT_EMPTY_PATH | AT_RECURSIVE
    tree = call(STEP, "syscall", SYS_OPEN_TREE, fd, b"\0", flags, what="copy the mount", path=path)
    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd, each of 64 bits.
    attributes = (MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, 0, namespace)
    structure = b"".join(each.to_bytes(8, sys.byteorder) for each in attributes)
    arguments = (tree, b"\0", AT_EMPTY_PATH | AT_RECURSIVE, structure, len(structure))
    call(STEP, "syscall", SYS_MOUNT_SETATTR, *arguments, what="map its owner", path=path)
    return tree
