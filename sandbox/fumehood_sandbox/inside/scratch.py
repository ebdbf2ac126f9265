"""Inodes of the tmpfs of scratch: a limit that bubblewrap can't set, added by a remount from within."""

from fumehood_sandbox.inside.report import report
from fumehood_sandbox.kernel.constants import REMOUNT_SCRATCH_FLAGS
from fumehood_sandbox.kernel.libc import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def limit_inodes(status: int, scratch: "dict[str, Any]") -> None:
    """Bound the files of each folder. What a remount doesn't name, as its size and mode, stays as it is.

    Needs CAP_SYS_ADMIN in the sandbox's user namespace, and to be in no Landlock domain.
    """
    options = f"nr_inodes={scratch['files']}\0".encode()
    for folder in scratch["folders"]:
        arguments = (b"tmpfs\0", folder.encode() + b"\0", b"tmpfs\0", REMOUNT_SCRATCH_FLAGS, options)
        call("scratch", "mount", *arguments, what="limit its files", path=folder)
    report(status, "layer", "scratch", f"{scratch['bytes']} bytes and {scratch['files']} files in each folder")
