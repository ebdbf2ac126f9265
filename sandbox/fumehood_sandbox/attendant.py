"""Outside a sandbox whose program forks a process for each call: gives each child its own places, and looks at it.

A process of our code alone, one for each zygote. It moves into the sandbox's user namespace, where it may mount and the
plugin's processes may not, and stays outside of all others. What the zygote was made of is not trusted: what a child
is given is decided, or found, from here. What a zygote looks at in its children afterwards is not; see docs/sandbox.md,
"Who is kept apart". Like the stages it is run by `python -I -S` and takes nothing but `libc`. Read `approve`, `bear`
and `finish` for the order.
"""

import _ctypes
import _socket
import os
import select
import sys

from fumehood_sandbox.inspection import Inspection
from fumehood_sandbox.libc import StepError, call, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
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
_MSG_DONTWAIT = 0x40
_ANCILLARY_BYTES = 128
_AT_FDCWD = -100
_ENOPROTOOPT = 92
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
# The same on every architecture.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429


def main(config: "dict[str, Any]") -> "NoReturn":
    """Serve until the launcher goes.

    While a child sets itself up the next one is forked, if it was ordered. Answers come in the order of the questions.
    """
    function("prctl")(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    orders = _socket.socket(fileno=config["orders_fd"])
    attendant = _Attendant(config)
    under_way: list[_Child | bytes] = []
    while True:
        order, doors = _next_order(orders, wait=not under_way)
        if order == BEAR:
            under_way.append(_told_if_it_fails(attendant.bear, doors))
            for door in doors:
                os.close(door)
        elif order == APPROVE:
            under_way.append(_told_if_it_fails(attendant.approve))
        elif order is not None:
            os._exit(0)  # the launcher is gone, or doesn't want this one any more
        if order is None or len(under_way) > 1 or isinstance(under_way[0], bytes):
            _answer(orders, attendant, under_way.pop(0))


def _next_order(orders: "_socket.socket", *, wait: bool) -> "tuple[bytes | None, list[int]]":
    """The next order, with the descriptors that came with it. None: there is none now, and nobody waits for one."""
    try:
        order, ancillary, _, _ = orders.recvmsg(_LONGEST_BYTES, _ANCILLARY_BYTES, 0 if wait else _MSG_DONTWAIT)
    except BlockingIOError:
        return None, []
    return order, _descriptors(ancillary)


def _answer(orders: "_socket.socket", attendant: "_Attendant", first: "_Child | bytes") -> None:
    if isinstance(first, bytes):
        orders.send(first)
        return
    answer = _told_if_it_fails(attendant.finish, first)
    if answer == BORN:
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in first.fds)
        answer += b"\t" + str(first.pid).encode()
        orders.sendmsg([answer], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    else:
        orders.send(answer)
    first.close()


def _told_if_it_fails(step: "Callable[..., Any]", *arguments: object) -> "Any":  # noqa: ANN401 - what `step` returns
    """What a step returns, or the message to the launcher that says why it failed."""
    try:
        return step(*arguments)
    except StepError as error:
        return _told(error.fields)
    except Exception as error:  # noqa: BLE001 - a process that ends while it is looked at, or a hostile one
        number = getattr(error, "errno", 0) or 0
        return _told(("attendant", f"{type(error).__name__}: {error}", "", str(number)))


class _Child:
    """One that is under way. `fds` are a pidfd and this side's ends of its stdin, stdout and stderr."""

    def __init__(self) -> None:
        self.pid = 0
        self.fds: list[int] = []
        self.inodes: list[int] = []
        """Of its pipes."""

    def close(self) -> None:
        for fd in self.fds:
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
        self._look = Inspection(config)
        self._control = _socket.socket(fileno=config["control_fd"])
        self._control.setsockopt(_socket.SOL_SOCKET, _SO_PASSCRED, 1)
        _try_option(self._control, _SO_PASSPIDFD)
        self._control.settimeout(_ANSWER_S)
        self._base = -1
        self._setns, self._mount = function("setns"), function("mount")
        self._scratch = [each.encode() + b"\0" for each in config["scratch"]]
        self._below: list[str] = config["below_scratch"]
        size: int = config["scratch_bytes"]
        self._tmpfs = f"mode=1777,size={size}\0".encode()
        user, group = config["identity"]
        self._maps = (("uid_map", f"{user} {user} 1\n".encode()), ("gid_map", f"{group} {group} 1\n".encode()))

    def approve(self) -> bytes:
        """Make sure that whatever the zygote's children share can't be written to, and that it has nothing else.

        Raises:
            StepError: it can't be had; `problem` is for the plugin's author.
        """
        zygote = self._enter()
        self._hide_others()
        self._freeze_scratch()
        self._look.look_at_zygote(zygote)
        return APPROVED

    def _enter(self) -> str:
        """Move to where this process may mount: the sandbox's user namespace, and from there its mount namespace.

        Returns the zygote's number.
        """
        init = self._config["init_pid"]
        processes = self._look.read(f"{init}/task/{init}/children").split()
        zygote = processes[0].decode()
        processes += self._look.read(f"{zygote}/task/{zygote}/children").split()
        if len(processes) != 1:
            raise StepError("zygote", f"{len(processes) - 1} other processes were left by its import")
        self._base = os.open(f"{zygote}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._look.proc)
        call("attendant", "setns", self._config["user_namespace_fd"], _CLONE_NEWUSER, what="enter the user namespace")
        call("attendant", "setns", self._base, _CLONE_NEWNS, what="enter the mount namespace")
        return zygote

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

    def bear(self, doors: "list[int]") -> _Child:
        """Have one child forked, and give it its places. It enters its cgroup through `doors`, and sets itself up.

        Raises:
            StepError: there is no such child. It may be alive.
        """
        child = _Child()
        try:
            child.inodes = self._order(child.fds, doors)
            child.pid = self._learn_its_number(child.fds)
            self._give_places(child.pid, child.fds[0])
            os.write(child.fds[1], _GO)
        except BaseException:
            child.close()
            raise
        return child

    def finish(self, child: _Child) -> bytes:
        """Look at what the child is once it is set up, and let it go on.

        Raises:
            StepError: it is not what it should be. It may be alive.
        """
        _, stdin, stdout, _ = child.fds
        poller = select.poll()
        poller.register(stdout, select.POLLIN)
        if not poller.poll(_ANSWER_S * 1000) or os.read(stdout, 1) != _CHILD_IS_SET:
            raise StepError("fork", "the child did not give up what it must")
        self._look.look_at_child(str(child.pid), child.inodes)
        os.write(stdin, _GO)
        return BORN

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
            if self._look.status(str(pid))[b"PPid"] != self._look.zygote.encode():
                raise StepError("fork", f"process {pid} is not the zygote's child")
        return pid

    def _give_places(self, pid: int, pidfd: int) -> None:
        for name, content in self._maps:
            fd = os.open(f"{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._look.proc)
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
