"""New namespaces, and those of others. A user namespace would give a program capabilities over its own."""

from __future__ import annotations

import ctypes
import os
import signal

from tests.attacks.inside.kit import ABSENT, Arena, Pair, answer, attack, in_child, syscall

FLAGS = {
    "mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000,
}  # fmt: skip
_TIME = 0x80
_HIGH = 1 << 40
_CLONE_FILES = 0x400
_FS = 0x200


def _fork_by(*arguments: object) -> str:
    """clone(2) as a system call; the child it makes, if it does, ends at once."""
    pid = answer(*arguments)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        return os.strerror(-pid) if pid == 0 else _name(-pid)
    os.waitpid(pid, 0)
    return "done"


def _name(number: int) -> str:
    import errno  # noqa: PLC0415 - one use

    return errno.errorcode[number]


def _clone3(flags: int) -> str:
    arguments = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, int(signal.SIGCHLD))
    return _fork_by("clone3", ctypes.byref(arguments), ctypes.sizeof(arguments))


def _of_each_kind(kind: str, flag: int) -> None:
    @attack("S301", "EPERM", name=f"unshare_{kind}")
    def unshare(_: Arena) -> Pair:
        return syscall("unshare", flag), syscall("unshare", _CLONE_FILES)

    @attack("S301", "EPERM", name=f"unshare_{kind}_with_a_high_bit")
    def unshare_high(_: Arena) -> Pair:
        return syscall("unshare", flag | _HIGH), syscall("unshare", _FS)

    if flag == _TIME:
        return  # clone(2) has the exit signal in these bits

    @attack("S301", "EPERM", name=f"clone_{kind}")
    def clone(_: Arena) -> Pair:
        return _fork_by("clone", flag | signal.SIGCHLD, 0, 0, 0, 0), _fork_by("clone", int(signal.SIGCHLD), 0, 0, 0, 0)

    @attack("S301", "EPERM", name=f"clone_{kind}_with_a_high_bit")
    def clone_high(_: Arena) -> Pair:
        return (
            _fork_by("clone", flag | signal.SIGCHLD | _HIGH, 0, 0, 0, 0),
            _fork_by("clone", int(signal.SIGCHLD), 0, 0, 0, 0),
        )

    @attack("S301", "ENOSYS", name=f"clone3_{kind}")
    def clone3(_: Arena) -> Pair:
        """Its flags lie in memory, where a filter can't look: the call doesn't exist, and libc takes clone."""
        return _clone3(flag), in_child(lambda: None)


for _kind, _flag in {**FLAGS, "time": _TIME}.items():
    _of_each_kind(_kind, _flag)


@attack("S301", "EPERM")
def all_namespaces_at_once(_: Arena) -> Pair:
    return syscall("unshare", sum(FLAGS.values())), syscall("unshare", _CLONE_FILES)


def _enter(kind: str) -> None:
    @attack("S302", "EPERM", name=f"enter_own_{kind}_namespace")
    def enter(_: Arena) -> Pair:
        """One's own counts as well: entering the user namespace anew would give its capabilities back."""
        fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
        return syscall("setns", fd, 0), "done" if os.fstat(fd).st_ino else "no namespace"


for _kind in ("mnt", "cgroup", "uts", "ipc", "user", "pid", "net", "time"):
    _enter(_kind)


@attack("S302", "EPERM")
def enter_by_pidfd(_: Arena) -> Pair:
    pidfd = os.pidfd_open(os.getppid())
    return syscall("setns", pidfd, FLAGS["user"] | FLAGS["mount"]), "done" if pidfd else ""


@attack("S302", "EPERM")
def parent_of_the_user_namespace(_: Arena) -> Pair:
    """NS_GET_USERNS and NS_GET_PARENT hand out descriptors of namespaces further out, unless they are out of reach."""
    user = os.open("/proc/self/ns/user", os.O_RDONLY)
    return syscall("ioctl", user, 0xB702, 0), syscall("ioctl", user, 0xB703, 0)  # NS_GET_PARENT, NS_GET_NSTYPE


@attack("S302", "EPERM", "EACCES", "ENOENT")
def namespaces_of_the_first_process(_: Arena) -> Pair:
    import errno  # noqa: PLC0415 - one use

    try:
        os.open("/proc/1/ns/mnt", os.O_RDONLY)
    except OSError as error:
        return errno.errorcode[error.errno or 0], syscall("getpid")
    return "opened", ABSENT
