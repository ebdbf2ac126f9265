"""Other processes: the launcher, the sandbox beside this one, pid 1."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable

from tests.attacks.inside.kit import Arena, Pair, answer, attack, outcome, syscall

_PTRACE_TRACEME, _PTRACE_PEEKDATA, _PTRACE_ATTACH, _PTRACE_SEIZE = 0, 2, 16, 0x4206
_PRIO_PROCESS = 0
_CLONE_PARENT = 0x8000
_MAP_HUGETLB, _MFD_HUGETLB = 0x40000, 4
_TRUE = (os.path.realpath(sys.executable), ["python", "-I", "-S", "-c", ""], {})
_SCHED_FIFO, _SCHED_RR, _SCHED_BATCH, _SCHED_DEADLINE = 1, 2, 3, 6
_IOPRIO_WHO_PROCESS, _IOPRIO_REALTIME = 1, 1 << 13


def _child() -> int:
    """A process of one's own, which waits until its parent's pipe is closed: for the attacks' controls."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    return pid


def _outside(arena: Arena) -> list[int]:
    """The numbers that are not this sandbox's own as well."""
    return [pid for pid in arena.outside_pids if not os.path.exists(f"/proc/{pid}")]


def _all_the_same(outcomes: list[str]) -> str:
    assert outcomes, "there was nobody to attack"
    return outcomes[0] if len(set(outcomes)) == 1 else str(outcomes)


def _on_those_outside(name: str, attempt: Callable[[int], str]) -> None:
    @attack("S201", "ESRCH", "EINVAL", name=f"{name}_outside")
    def tried(arena: Arena) -> Pair:
        return _all_the_same([attempt(pid) for pid in _outside(arena)]), attempt(_child())


def _on_first_process(name: str, attempt: Callable[[int], str], *denied: str) -> None:
    @attack("S202", *(denied or ("EPERM", "EACCES")), name=f"{name}_first_process")
    def tried(_: Arena) -> Pair:
        return attempt(1), attempt(_child())


_BENIGN: dict[str, Callable[[int], str]] = {
    "signal": lambda pid: outcome(lambda: os.kill(pid, signal.SIGCONT)),
    "kill": lambda pid: outcome(lambda: os.kill(pid, signal.SIGKILL)),
    "queue_signal": lambda pid: outcome(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGUSR1)),
    "limits": lambda pid: outcome(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1))),
    "affinity": lambda pid: outcome(lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid))),
    "priority": lambda pid: outcome(lambda: os.setpriority(_PRIO_PROCESS, pid, 19)),
    "scheduler": lambda pid: outcome(lambda: os.sched_setscheduler(pid, _SCHED_BATCH, os.sched_param(0))),
    "io_priority": lambda pid: syscall("ioprio_set", _IOPRIO_WHO_PROCESS, pid, 3 << 13),
}
for _name, _attempt in _BENIGN.items():
    _on_those_outside(_name, _attempt)


_on_first_process("signal", _BENIGN["signal"])
_on_first_process("kill", _BENIGN["kill"])
_on_first_process("queue_signal", _BENIGN["queue_signal"])
_on_first_process("limits", _BENIGN["limits"])


@attack("S202", "EPERM", "EACCES")
def signal_everybody(_: Arena) -> Pair:
    """To all that this user may signal: those are the sandbox's own processes, and pid 1 is none of them."""
    group = os.fork()
    if group == 0:
        os._exit(0)
    os.waitpid(group, 0)
    return outcome(lambda: os.kill(1, signal.SIGKILL)), outcome(lambda: os.kill(os.getpid(), 0))


def _tracing(name: str, attempt: Callable[[], str], control: Callable[[], str]) -> None:
    @attack("S204", "EPERM", name=name)
    def tried(_: Arena) -> Pair:
        return attempt(), control()


_buffer = ctypes.create_string_buffer(64)
_iovec = (ctypes.c_size_t * 2)(ctypes.addressof(_buffer), 8)
_parent = os.getppid


def _vm(call: str) -> str:
    return syscall(call, _child(), ctypes.byref(_iovec), 1, ctypes.byref(_iovec), 1, 0)


def _own_process() -> str:
    return outcome(lambda: os.kill(_child(), 0))


_tracing("trace_parent", lambda: syscall("ptrace", _PTRACE_ATTACH, _parent(), 0, 0), _own_process)
_tracing("seize_parent", lambda: syscall("ptrace", _PTRACE_SEIZE, _parent(), 0, 0), _own_process)
_tracing("trace_child", lambda: syscall("ptrace", _PTRACE_ATTACH, _child(), 0, 0), _own_process)
_tracing("trace_first_process", lambda: syscall("ptrace", _PTRACE_ATTACH, 1, 0, 0), _own_process)
_tracing("ask_to_be_traced", lambda: syscall("ptrace", _PTRACE_TRACEME, 0, 0, 0), _own_process)
_tracing(
    "read_memory", lambda: _vm("process_vm_readv"), lambda: outcome(lambda: os.open("/proc/self/mem", os.O_RDONLY))
)
_tracing("write_memory", lambda: _vm("process_vm_writev"), _own_process)
_tracing("compare_kernel_objects", lambda: syscall("kcmp", os.getpid(), _parent(), 2, 0, 0), _own_process)


@attack("S204", "EPERM")
def take_a_descriptor(_: Arena) -> Pair:
    """A descriptor of another process by its pidfd, also of a child's."""
    pidfd = os.pidfd_open(_child())
    return syscall("pidfd_getfd", pidfd, 0, 0), outcome(lambda: signal.pidfd_send_signal(pidfd, signal.SIGCONT))


@attack("S204", "EPERM", "EACCES", "ENOENT", "ESRCH")
def take_a_descriptor_of_the_first_process_by_proc(_: Arena) -> Pair:
    return outcome(lambda: os.open("/proc/1/fd/1", os.O_WRONLY)), outcome(lambda: os.listdir("/proc/self/fd"))


@attack("S208", "EPERM")
def child_as_a_sibling(_: Arena) -> Pair:
    """A child of this process's own parent would not be among what this process is ended with."""
    pid = answer("clone", _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return errno.errorcode.get(-pid, "done"), outcome(lambda: os.waitpid(os.posix_spawn(*_TRUE), 0))


@attack("S205", "EPERM")
def real_time_scheduling(_: Arena) -> Pair:
    """Also where the operator's user may: a spinning real-time process takes a processor from everybody."""
    found = {
        outcome(lambda policy=policy: os.sched_setscheduler(0, policy, os.sched_param(1)))
        for policy in (_SCHED_FIFO, _SCHED_RR)
    }
    return _all_the_same(list(found)), outcome(lambda: os.sched_setscheduler(0, _SCHED_BATCH, os.sched_param(0)))


@attack("S205", "EACCES", "EPERM")
def raise_the_own_priority(_: Arena) -> Pair:
    return outcome(lambda: os.setpriority(_PRIO_PROCESS, 0, -5)), outcome(lambda: os.setpriority(_PRIO_PROCESS, 0, 5))


@attack("S205", "EPERM")
def real_time_input_and_output(_: Arena) -> Pair:
    return syscall("ioprio_set", _IOPRIO_WHO_PROCESS, 0, _IOPRIO_REALTIME), syscall(
        "ioprio_set", _IOPRIO_WHO_PROCESS, 0, 3 << 13
    )


@attack("S205", "ENOMEM", "EPERM")
def lock_memory(_: Arena) -> Pair:
    """Memory that can't be swapped: 64 KiB at most."""
    big = ctypes.create_string_buffer(1 << 20)
    libc = ctypes.CDLL(None, use_errno=True)

    def lock(size: int) -> str:
        locked = libc.mlock(ctypes.c_void_p(ctypes.addressof(big)), ctypes.c_size_t(size))
        return "done" if locked == 0 else syscall("mlock2", ctypes.c_void_p(ctypes.addressof(big)), size, 0)

    return lock(1 << 20), lock(4096)


@attack("S205", "EPERM")
def huge_pages(_: Arena) -> Pair:
    """They come from a pool of the whole machine's, and count against nobody's memory."""
    size, flags = 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return syscall("mmap", 0, size, 3, flags | _MAP_HUGETLB, -1, 0), syscall("mmap", 0, size, 3, flags, -1, 0)


@attack("S205", "EPERM")
def huge_pages_in_a_file(_: Arena) -> Pair:
    return syscall("memfd_create", b"huge\0", _MFD_HUGETLB), syscall("memfd_create", b"small\0", 0)


@attack("S205", "EPERM", "ValueError: not allowed to raise maximum limit")
def raise_a_limit(_: Arena) -> Pair:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = outcome(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1)))
    assert answer("getpid") > 1
    return found, outcome(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft)))
