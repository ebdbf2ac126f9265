"""What a child finds where it may write, and what it doesn't find. Part of `attendant`, in the same process."""

import _ctypes
import os

from fumehood_sandbox.kernel.libc import StepError, call, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
# The same on every architecture.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429


class Places:
    """Mounts, and says who a child is, from within the sandbox's namespaces."""

    def __init__(self, config: "dict[str, Any]", proc: int) -> None:
        """`proc` is this process's own /proc."""
        self._proc = proc
        self._base = -1
        self._user_namespace: int = config["user_namespace_fd"]
        self._setns, self._mount = function("setns"), function("mount")
        self._scratch = [each.encode() + b"\0" for each in config["scratch"]]
        self._below: list[str] = config["below_scratch"]
        size: int = config["scratch_bytes"]
        self._tmpfs = f"mode=1777,size={size}\0".encode()
        user, group = config["identity"]
        self._maps = (("uid_map", f"{user} {user} 1\n".encode()), ("gid_map", f"{group} {group} 1\n".encode()))

    def prepare(self, zygote: str) -> None:
        """Move to where this process may mount, and see that nothing can be left where all children look.

        Raises:
            StepError: it can't be had; `problem` is for the plugin's author.
        """
        self._base = os.open(f"{zygote}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        call("attendant", "setns", self._user_namespace, _CLONE_NEWUSER, what="enter the user namespace")
        call("attendant", "setns", self._base, _CLONE_NEWNS, what="enter the mount namespace")
        self._hide_others()
        self._freeze_scratch()

    def _hide_others(self) -> None:
        """Show in /proc only what the looker could trace: itself and its descendants, by Landlock and by namespace.

        Not a /proc of each child's own: the kernel refuses one to namespaces within these (mount_too_revealing), and
        this costs nothing at a fork. /proc/locks says to everybody what anybody has locked.
        """
        flags = _MS_REMOUNT | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        call("proc", "mount", b"proc\0", b"/proc\0", b"proc\0", flags, b"hidepid=4\0", what="hide others", path="/proc")
        arguments = (b"/dev/null\0", b"/proc/locks\0", b"none\0", _MS_BIND, 0)
        call("proc", "mount", *arguments, what="cover", path="/proc/locks")

    def _freeze_scratch(self) -> None:
        """The zygote's own /tmp lies beneath each child's, where a working directory could still lead."""
        for place in self._scratch:
            flags = _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
            if self._mount(b"tmpfs\0", place, b"tmpfs\0", flags, 0) != 0:
                path = place[:-1].decode()
                problem = f"its import keeps a file open for writing: {os.strerror(_ctypes.get_errno())}"
                raise StepError("zygote", problem, path, _ctypes.get_errno())

    def give(self, pid: int, pidfd: int) -> None:
        """Write a child's identity, and mount scratch of its own in its namespace.

        Raises:
            StepError: the kernel refuses.
        """
        for name, content in self._maps:
            fd = os.open(f"{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
            try:
                os.write(fd, content)
            finally:
                os.close(fd)
        if self._setns(pidfd, _CLONE_NEWNS) != 0:
            raise StepError("fork", f"enter its mount namespace: {os.strerror(_ctypes.get_errno())}")
        try:
            trees = [(path, self._copy_of(path)) for path in self._below]
            for place in self._scratch:
                if self._mount(b"tmpfs\0", place, b"tmpfs\0", _MS_NOSUID | _MS_NODEV, self._tmpfs) != 0:
                    raise StepError("fork", f"mount its scratch: {os.strerror(_ctypes.get_errno())}")
            for path, tree in trees:
                self._attach(path, tree)
        finally:
            if self._setns(self._base, _CLONE_NEWNS) != 0:
                raise StepError("fork", f"leave its mount namespace: {os.strerror(_ctypes.get_errno())}")

    def _copy_of(self, path: str) -> int:
        """What is mounted here, before new scratch hides it."""
        flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
        arguments = (_AT_FDCWD, os.fsencode(path) + b"\0", flags)
        return call("fork", "syscall", _SYS_OPEN_TREE, *arguments, what="copy the mount", path=path)

    def _attach(self, path: str, tree: int) -> None:
        """Mount it in scratch, where nobody but this process has been."""
        is_folder = os.fstat(tree).st_mode & 0o170000 == 0o040000  # noqa: PLR2004 - S_IFMT, S_IFDIR
        parts = path.split("/")
        for depth in range(2, len(parts) + is_folder):
            folder = "/".join(parts[:depth])
            if not os.path.isdir(folder):  # noqa: PTH112 - pathlib is an import
                os.mkdir(folder, 0o755)  # noqa: PTH102 - likewise
        if not is_folder:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        arguments = (tree, b"\0", _AT_FDCWD, os.fsencode(path) + b"\0", _MOVE_MOUNT_F_EMPTY_PATH)
        call("fork", "syscall", _SYS_MOVE_MOUNT, *arguments, what="attach", path=path)
        os.close(tree)
