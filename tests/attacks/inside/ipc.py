"""Ways of talking to processes outside that need neither files nor sockets."""

from __future__ import annotations

import ctypes
import os

from tests.attacks.inside.kit import Arena, Pair, answer, attack, outcome, read_file, syscall

_CREATE = 0o1666
"""IPC_CREAT, open to everybody."""


def _system_v(name: str, call: str, *size: int) -> None:
    @attack("S206", "ENOENT", name=f"system_v_{name}")
    def tried(arena: Arena) -> Pair:
        """The launcher made one under this key, open to everybody."""
        return syscall(call, arena.lure_key, *size, 0o666), syscall(call, arena.lure_key + 1, *size, _CREATE)


_system_v("shared_memory", "shmget", 4096)
_system_v("message_queue", "msgget")
_system_v("semaphores", "semget", 1)


@attack("S206", "none")
def system_v_listing(arena: Arena) -> Pair:
    lines = read_file("/proc/sysvipc/shm").splitlines()[1:] + read_file("/proc/sysvipc/sem").splitlines()[1:]
    found = [line for line in lines if f" {arena.lure_key} " in f" {line} "]
    return "none" if not found else str(found), "done"


@attack("S206", "ENOENT", "EMFILE", "EPERM", "EOVERFLOW")
def posix_message_queue(arena: Arena) -> Pair:
    """None is there, and none can be made: their memory would be counted by no limit of the sandbox's."""
    attributes = (ctypes.c_long * 8)(0, 1, 8, 0)
    there = answer("mq_open", f"{arena.lure}\0".encode(), os.O_RDWR, 0, 0)
    made = syscall("mq_open", b"planted\0", os.O_RDWR | os.O_CREAT, 0o600, ctypes.byref(attributes))
    return made if there < 0 else "opened", outcome(os.pipe)


@attack("S206", "ENOENT", "absent")
def shared_memory_by_name(arena: Arena) -> Pair:
    """/dev/shm is the sandbox's own: what the launcher put in its own is not there."""
    found = os.listdir("/dev/shm")
    return "absent" if arena.lure not in found else str(found), outcome(
        lambda: os.open("/dev/shm/own", os.O_CREAT | os.O_RDWR)
    )


@attack("S206", "EAGAIN", "EINVAL", "EPERM", "ENOTTY", "EACCES", "nobody outside")
def signal_by_descriptor_owner(arena: Arena) -> Pair:
    """F_SETOWN makes the kernel signal a process when a descriptor is ready: one of this namespace, or none."""
    import fcntl  # noqa: PLC0415 - the one use

    read, _write = os.pipe()
    outside = [pid for pid in arena.outside_pids if not os.path.exists(f"/proc/{pid}")]
    found = {outcome(lambda pid=pid: fcntl.fcntl(read, fcntl.F_SETOWN, pid)) for pid in outside}
    control = outcome(lambda: fcntl.fcntl(read, fcntl.F_SETOWN, os.getpid()))
    return "nobody outside" if found <= {"ESRCH", "done"} and _owner(outside) else str(found), control


def _owner(outside: list[int]) -> bool:
    """Whether the kernel, asked again, names no process outside as the owner."""
    import fcntl  # noqa: PLC0415 - the one use

    read, _write = os.pipe()
    for pid in outside:
        outcome(lambda pid=pid: fcntl.fcntl(read, fcntl.F_SETOWN, pid))
        if fcntl.fcntl(read, fcntl.F_GETOWN) == pid:
            return False
    return True


@attack("S207", "EPERM")
def lease_on_a_shared_file(arena: Arena) -> Pair:
    """A lease on a file makes whoever opens it outside wait for up to 45 seconds."""
    victim = os.open(f"{arena.read}/file" if arena.read else os.__file__, os.O_RDONLY)
    return syscall("fcntl", victim, 1024, 0), syscall("fcntl", victim, 1)  # F_SETLEASE F_RDLCK; F_GETFD


@attack("S207", "EPERM")
def notice_of_a_shared_folder(arena: Arena) -> Pair:
    """F_NOTIFY, inotify's predecessor."""
    folder = os.open(arena.own, os.O_RDONLY)
    return syscall("fcntl", folder, 1026, 0x80000001), syscall("fcntl", folder, 3)
