"""Mounts a child's own scratch and maps its user, from within the sandbox's namespaces. Part of the fork supervisor."""

import _ctypes
import os

from fumehood_sandbox.fork.handshake import SUPERVISOR_STEP
from fumehood_sandbox.kernel.constants import (
    AT_FDCWD,
    AT_RECURSIVE,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MOVE_MOUNT_F_EMPTY_PATH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
    OPEN_TREE_CLONE,
    S_IFDIR,
    S_IFMT,
    SYS_MOVE_MOUNT,
    SYS_OPEN_TREE,
)
from fumehood_sandbox.kernel.libc import StepError, call, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ScratchMounts:
    """Enters mount namespaces by setns(2), and mounts there."""

    def __init__(self, config: "dict[str, Any]", proc: int) -> None:
        """`proc` is this process's own /proc."""
        self._proc = proc
        self._base = -1
        self._user_namespace: int = config["user_namespace_fd"]
        self._setns, self._mount = function("setns"), function("mount")
        self._scratch = [each.encode() + b"\0" for each in config["scratch"]]
        self._below: list[str] = config["below_scratch"]
        size: int = config["scratch_bytes"]
        files: int = config["scratch_files"]
        self._tmpfs = f"mode=1777,size={size},nr_inodes={files}\0".encode()
        user, group = config["identity"]
        self._maps = (("uid_map", f"{user} {user} 1\n".encode()), ("gid_map", f"{group} {group} 1\n".encode()))

    def prepare_zygote(self, zygote: str) -> None:
        """Move to where this process may mount, and see that nothing can be left where all children look.

        Raises:
            StepError: it can't be had; `problem` is for the plugin's author.
        """
        self._base = os.open(f"{zygote}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        call(SUPERVISOR_STEP, "setns", self._user_namespace, CLONE_NEWUSER, what="enter the user namespace")
        call(SUPERVISOR_STEP, "setns", self._base, CLONE_NEWNS, what="enter the mount namespace")
        self._hide_others()
        self._make_scratch_read_only()

    def _hide_others(self) -> None:
        """Show in /proc only what the looker could trace: itself and its descendants, by Landlock and by namespace.

        Not a /proc of each child's own: the kernel refuses one to namespaces within these (mount_too_revealing), and
        this costs nothing at a fork. /proc/locks says to everybody what anybody has locked.
        """
        flags = MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC
        call("proc", "mount", b"proc\0", b"/proc\0", b"proc\0", flags, b"hidepid=4\0", what="hide others", path="/proc")
        arguments = (b"/dev/null\0", b"/proc/locks\0", b"none\0", MS_BIND, 0)
        call("proc", "mount", *arguments, what="cover", path="/proc/locks")

    def _make_scratch_read_only(self) -> None:
        """The zygote's own /tmp lies beneath each child's, where a working directory could still lead."""
        for folder in self._scratch:
            flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV
            if self._mount(b"tmpfs\0", folder, b"tmpfs\0", flags, 0) != 0:
                path = folder[:-1].decode()
                problem = f"its import keeps a file open for writing: {os.strerror(_ctypes.get_errno())}"
                raise StepError("zygote", problem, path, _ctypes.get_errno())

    def set_up_child(self, pid: int, pidfd: int) -> None:
        """Write a child's user map, and mount scratch of its own in its namespace.

        Raises:
            StepError: the kernel refuses.
        """
        for name, content in self._maps:
            fd = os.open(f"{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
            try:
                os.write(fd, content)
            finally:
                os.close(fd)
        if self._setns(pidfd, CLONE_NEWNS) != 0:
            raise StepError("fork", f"enter its mount namespace: {os.strerror(_ctypes.get_errno())}")
        try:
            trees = [(path, self._copy_of(path)) for path in self._below]
            for folder in self._scratch:
                if self._mount(b"tmpfs\0", folder, b"tmpfs\0", MS_NOSUID | MS_NODEV, self._tmpfs) != 0:
                    raise StepError("fork", f"mount its scratch: {os.strerror(_ctypes.get_errno())}")
            for path, tree in trees:
                self._attach(path, tree)
        finally:
            if self._setns(self._base, CLONE_NEWNS) != 0:
                raise StepError("fork", f"leave its mount namespace: {os.strerror(_ctypes.get_errno())}")

    def _copy_of(self, path: str) -> int:
        """What is mounted here, before new scratch hides it."""
        flags = OPEN_TREE_CLONE | AT_RECURSIVE | os.O_CLOEXEC
        arguments = (AT_FDCWD, os.fsencode(path) + b"\0", flags)
        return call("fork", "syscall", SYS_OPEN_TREE, *arguments, what="copy the mount", path=path)

    def _attach(self, path: str, tree: int) -> None:
        """Mount it in scratch, where nobody but this process has been."""
        is_folder = os.fstat(tree).st_mode & S_IFMT == S_IFDIR
        parts = path.split("/")
        for depth in range(2, len(parts) + is_folder):
            folder = "/".join(parts[:depth])
            if not os.path.isdir(folder):  # noqa: PTH112 - pathlib is an import
                os.mkdir(folder)  # noqa: PTH102 - likewise
                os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the umask may close it to others
        if not is_folder:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        arguments = (tree, b"\0", AT_FDCWD, os.fsencode(path) + b"\0", MOVE_MOUNT_F_EMPTY_PATH)
        call("fork", "syscall", SYS_MOVE_MOUNT, *arguments, what="attach", path=path)
        os.close(tree)
