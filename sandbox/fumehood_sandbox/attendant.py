"""Outside a sandbox whose program forks a process for each call: gives each child its own places, and looks at it.

A process of our code alone, one for each zygote. It moves into the sandbox's user namespace, where it may mount and the
plugin's processes may not, and stays outside of all others. What the zygote was made of is not trusted: what a child
is given is decided, or found, from here. What a zygote looks at in its children afterwards is not; see docs/sandbox.md,
"Who is kept apart". Like the stages it is run by `python -I -S` and takes nothing but `libc`. Read `_approve` and
`_bear` for the order.
"""

import _ctypes
import _socket
import fcntl
import os
import re
import select
import sys

from fumehood_sandbox.libc import StepError, call, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

APPROVE, BEAR = b"approve", b"bear"
"""What it is asked: to make a zygote ready for its first child; to see one child into the world."""
APPROVED, BORN, FAILED = b"approved", b"born", b"failed"
"""What it answers. `BORN` brings a pidfd and this side's ends of the child's pipes."""

_CHILD_IS_THERE, _GO, _CHILD_IS_SET = b"b", b"g", b"s"
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_SCM_CREDENTIALS, _SCM_PIDFD = 2, 4
_SO_PASSCRED, _SO_PASSPIDFD = 16, 76
_ANSWER_S = 5.0
"""A child needs 3 ms to be there. One that takes this long is stopped, or its zygote is at fault."""
_LONGEST_BYTES = 64
_ANCILLARY_BYTES = 128
_LONGEST_FILE_BYTES = 1 << 16
_AT_FDCWD = -100
_ENOPROTOOPT = 92
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
# The same on every architecture.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SHARED = re.compile(rb"^\S+ ...s .*$", re.MULTILINE)
# Source: include/uapi/linux/fs.h: struct procmap_query, PROCMAP_QUERY_VMA_SHARED | PROCMAP_QUERY_COVERING_OR_NEXT_VMA.
_PROCMAP_QUERY = 0xC0686611
_PROCMAP_QUERY_BYTES = 104
_PROCMAP_WHAT = slice(24, 80)  # start, end, flags, page size, offset, inode, device
_PROCMAP_END = slice(32, 40)
_SHARED_AT_OR_AFTER = 0x08 | 0x10
_NO_CAPABILITIES = [b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb"]


def main(config: "dict[str, Any]") -> "NoReturn":
    """Serve until the launcher goes."""
    function("prctl")(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    orders = _socket.socket(fileno=config["orders_fd"])
    attendant = _Attendant(config)
    while True:
        order, ancillary, _, _ = orders.recvmsg(_LONGEST_BYTES, _ANCILLARY_BYTES)
        doors = _descriptors(ancillary)
        fds: list[int] = []
        try:
            if order == APPROVE:
                attendant.approve()
                answer = APPROVED
            elif order == BEAR:
                pid, fds = attendant.bear(doors)
                answer = BORN + b"\t" + str(pid).encode()
            else:
                os._exit(0)  # the launcher is gone, or doesn't want this one any more
        except StepError as error:
            answer = _told(error.fields)
        except Exception as error:  # noqa: BLE001 - a process that ends while it is looked at, or a hostile one
            number = getattr(error, "errno", 0) or 0
            answer = _told(("attendant", f"{type(error).__name__}: {error}", "", str(number)))
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        orders.sendmsg([answer], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if fds else [])
        for fd in (*fds, *doors):
            os.close(fd)


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    data = b"".join(part for _, kind, part in ancillary if kind == _socket.SCM_RIGHTS)
    return [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]


def _told(fields: "tuple[str, ...]") -> bytes:
    return "\t".join((FAILED.decode(), *fields)).encode("utf-8", "backslashreplace")


def _try_option(sock: "_socket.socket", option: int) -> None:
    try:
        sock.setsockopt(_socket.SOL_SOCKET, option, 1)
    except OSError as error:
        if error.errno != _ENOPROTOOPT:  # SO_PASSPIDFD is of Linux 6.5; see `_learn_its_number`
            raise


class _Attendant:
    def __init__(self, config: "dict[str, Any]") -> None:
        self._config = config
        self._proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        self._control = _socket.socket(fileno=config["control_fd"])
        self._control.setsockopt(_socket.SOL_SOCKET, _SO_PASSCRED, 1)
        _try_option(self._control, _SO_PASSPIDFD)
        self._control.settimeout(_ANSWER_S)
        self._zygote = ""
        self._base = -1
        self._shared: frozenset[bytes] = frozenset()
        """The shared mappings that the zygote was approved with: nobody can write through them."""
        self._filters = 0
        self._depth = 0
        """How many numbers a child has: one more than its zygote, since it has a PID namespace more."""
        self._setns, self._mount = function("setns"), function("mount")
        self._scratch = [each.encode() + b"\0" for each in config["scratch"]]
        self._below: list[str] = config["below_scratch"]
        size: int = config["scratch_bytes"]
        self._tmpfs = f"mode=1777,size={size}\0".encode()
        user, group = config["identity"]
        self._maps = (("uid_map", f"{user} {user} 1\n".encode()), ("gid_map", f"{group} {group} 1\n".encode()))

    def approve(self) -> None:
        """Make sure that whatever the zygote's children share can't be written to, and that it has nothing else.

        Raises:
            StepError: it can't be had; `problem` is for the plugin's author.
        """
        self._enter()
        self._hide_others()
        self._freeze_scratch()
        self._look_at_zygote()

    def _enter(self) -> None:
        """Move to where this process may mount: the sandbox's user namespace, and from there its mount namespace."""
        init = self._config["init_pid"]
        processes = self._read(f"{init}/task/{init}/children").split()
        self._zygote = processes[0].decode()
        processes += self._read(f"{self._zygote}/task/{self._zygote}/children").split()
        if len(processes) != 1:
            raise StepError("zygote", f"{len(processes) - 1} other processes were left by its import")
        self._base = os.open(f"{self._zygote}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        call("attendant", "setns", self._config["user_namespace_fd"], _CLONE_NEWUSER, what="enter the user namespace")
        call("attendant", "setns", self._base, _CLONE_NEWNS, what="enter the mount namespace")

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

    def _look_at_zygote(self) -> None:
        threads = self._entries(f"{self._zygote}/task")
        if len(threads) != 1:
            raise StepError("zygote", f"{len(threads) - 1} other threads were started by its import")
        pipes = {f"pipe:[{inode}]" for inode in self._config["pipes"]}
        known = {"/dev/null", f"socket:[{self._config['control_inode']}]", *pipes}
        for number in self._entries(f"{self._zygote}/fd"):
            target = os.readlink(f"{self._zygote}/fd/{number}", dir_fd=self._proc)
            if target not in known:
                raise StepError("zygote", f"descriptor {number} was left open by its import", target)
        self._shared = frozenset(self._shared_memory(self._zygote))
        mapping = ""
        for line in self._read(f"{self._zygote}/smaps").decode("utf-8", "replace").splitlines():
            if "-" in line.partition(" ")[0]:
                mapping = line
            elif line.startswith("VmFlags:") and " sh" in line:  # proc(5): shared, and open to be written
                raise StepError("zygote", "memory was shared by its import, which all calls could write to", mapping)
        status = self._status(self._zygote)
        self._filters = int(status[b"Seccomp_filters"])
        self._depth = len(status[b"NSpid"].split()) + 1

    def bear(self, doors: "list[int]") -> "tuple[int, list[int]]":
        """Have one child forked, give it its places, and look at what it is. It enters its cgroup through `doors`.

        Returns:
            Its process id, and descriptors: a pidfd, and this side's ends of its stdin, stdout and stderr.

        Raises:
            StepError: there is no such child, or it is not what it should be. It may be alive.
        """
        fds: list[int] = []
        try:
            inodes = self._order(fds, doors)
            pid = self._learn_its_number(fds)
            self._give_places(pid, fds[0])
            self._await_child(fds[1], fds[2])
            self._look_at_child(str(pid), inodes)
            os.write(fds[1], _GO)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return pid, fds

    def _order(self, kept: "list[int]", doors: "list[int]") -> "list[int]":
        """Send the zygote an order with the child's ends of three pipes. Returns the pipes' inodes."""
        (in_child, in_ours), (out_ours, out_child), (err_ours, err_child) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        kept += (in_ours, out_ours, err_ours)
        theirs = (in_child, out_child, err_child)
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (*theirs, *doors))
        try:
            self._control.sendmsg([_CHILD_IS_THERE], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            return [os.fstat(fd).st_ino for fd in theirs]
        finally:
            for fd in theirs:
                os.close(fd)

    def _learn_its_number(self, kept: "list[int]") -> int:
        """The kernel says who wrote, in numbers of this process's own namespace. Puts a pidfd before what is kept."""
        try:
            message, ancillary, _, _ = self._control.recvmsg(_LONGEST_BYTES, _ANCILLARY_BYTES)
        except TimeoutError:
            raise StepError("fork", f"no child after {_ANSWER_S:g} s") from None
        if message != _CHILD_IS_THERE:
            number = int(message[1:]) if message[1:].isdigit() else 0
            raise StepError("fork", f"refused: {os.strerror(number)}" if number else "the zygote is gone", "", number)
        found = {kind: int.from_bytes(data[:4], sys.byteorder) for _, kind, data in ancillary}
        if _SCM_PIDFD in found:
            kept.insert(0, found[_SCM_PIDFD])
        if _SCM_CREDENTIALS not in found:
            raise StepError("fork", "the kernel did not name the child")
        pid = found[_SCM_CREDENTIALS]
        if _SCM_PIDFD not in found:
            kept.insert(0, os.pidfd_open(pid))
            # The number may have been given to another process before the pidfd held it.
            if self._status(str(pid))[b"PPid"] != self._zygote.encode():
                raise StepError("fork", f"process {pid} is not the zygote's child")
        return pid

    def _give_places(self, pid: int, pidfd: int) -> None:
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

    def _await_child(self, stdin: int, stdout: int) -> None:
        os.write(stdin, _GO)
        poller = select.poll()
        poller.register(stdout, select.POLLIN)
        if not poller.poll(_ANSWER_S * 1000) or os.read(stdout, 1) != _CHILD_IS_SET:
            raise StepError("fork", "the child did not give up what it must")

    def _look_at_child(self, pid: str, inodes: "list[int]") -> None:
        """Believe the kernel, not the child, whose code the plugin's import may have changed."""
        status = self._status(pid)
        if any(status[name].strip(b"0") for name in _NO_CAPABILITIES):
            raise StepError("fork", "the child has capabilities")
        if status[b"PPid"] != self._zygote.encode():
            raise StepError("fork", f"process {pid} is not the zygote's child")
        if status[b"NoNewPrivs"] != b"1" or int(status[b"Seccomp_filters"]) <= self._filters:
            raise StepError("fork", "the child lacks its filter")
        # Its number in its own namespace comes last. All four namespaces are made by one clone(2), or none.
        names = [status[name].split() for name in (b"NSpid", b"NSsid")]
        if status[b"Threads"] != b"1" or any(numbers[-1] != b"1" for numbers in names) or len(names[0]) < self._depth:
            raise StepError("fork", "the child is not alone in namespaces and a session of its own")
        if set(self._entries(f"{pid}/fd")) != {"0", "1", "2"}:
            raise StepError("fork", "the child kept descriptors")
        for number, inode in enumerate(inodes):
            if os.readlink(f"{pid}/fd/{number}", dir_fd=self._proc) != f"pipe:[{inode}]":
                raise StepError("fork", f"the child's descriptor {number} is not its pipe")
        # After its descriptors: what it might have started earlier would have others, such as where orders come from.
        if self._entries(f"{pid}/task") != [pid] or self._read(f"{pid}/task/{pid}/children"):
            raise StepError("zygote", "a process for a call started others before its call came")
        if not self._shared.issuperset(self._shared_memory(pid)):
            raise StepError("fork", "memory was shared after the zygote was approved")

    def _shared_memory(self, pid: str) -> "list[bytes]":
        """What memory is shared: where it is, how, and what of. Something else could lie at the same place by now.

        From Linux 6.11 on the kernel is asked for just that, being quicker.
        """
        fd = os.open(f"{pid}/maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            found: list[bytes] = []
            address = 0
            while True:
                query = bytearray(_PROCMAP_QUERY_BYTES)
                query[0:8] = _PROCMAP_QUERY_BYTES.to_bytes(8, sys.byteorder)
                query[8:16] = _SHARED_AT_OR_AFTER.to_bytes(8, sys.byteorder)
                query[16:24] = address.to_bytes(8, sys.byteorder)
                try:
                    fcntl.ioctl(fd, _PROCMAP_QUERY, query)
                except FileNotFoundError:
                    return found  # there is no further one
                except OSError:
                    break  # an older kernel
                found.append(bytes(query[_PROCMAP_WHAT]))
                address = int.from_bytes(query[_PROCMAP_END], sys.byteorder)
        finally:
            os.close(fd)
        return _SHARED.findall(self._read(f"{pid}/maps"))

    def _status(self, pid: str) -> "dict[bytes, bytes]":
        lines = self._read(f"{pid}/status").splitlines()
        return {name: value for name, _, value in (line.partition(b":\t") for line in lines)}

    def _entries(self, path: str) -> "list[str]":
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            return os.listdir(fd)  # noqa: PTH208 - pathlib is an import
        finally:
            os.close(fd)

    def _read(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            parts = []
            while part := os.read(fd, _LONGEST_FILE_BYTES):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)
