"""The kernel's larger and older surfaces, and what belongs to the whole machine."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time

from tests.attacks.inside.kit import Arena, Pair, attack, in_child, outcome, syscall

_NULL = 0
_PERSONALITY_QUERY = 0xFFFFFFFF
_READ_IMPLIES_EXEC, _ADDR_NO_RANDOMIZE, _PER_LINUX32, _UNAME26 = 0x0400000, 0x0040000, 0x0008, 0x0020000
_room = ctypes.create_string_buffer(512)
_zeros = bytes(256)


def _denied(name: str, call: str, *arguments: object, promise: str = "S306") -> None:
    """Denied whatever the arguments say. The control is a call that every program makes."""

    @attack(promise, "EPERM", name=name)
    def tried(_: Arena) -> Pair:
        return syscall(call, *arguments), syscall("getpid")


_denied("io_uring_setup", "io_uring_setup", 1, _room)
_denied("io_uring_enter", "io_uring_enter", 0, 1, 0, 0, _NULL)
_denied("io_uring_register", "io_uring_register", 0, 0, _NULL, 0)
_denied("io_setup", "io_setup", 1, _room)
_denied("bpf_map", "bpf", 0, _zeros, 120)
_denied("bpf_program", "bpf", 5, _zeros, 120)
_denied("perf_event_open", "perf_event_open", _zeros, 0, -1, -1, 0)
_denied("userfaultfd", "userfaultfd", 1)
_denied("userfaultfd_of_the_kernels_faults", "userfaultfd", 0)
_denied("modify_ldt", "modify_ldt", 1, _zeros, 16)
_denied("iopl", "iopl", 3)
_denied("ioperm", "ioperm", 0x80, 1, 1)
_denied("uselib", "uselib", b"/lib/libc.so\0")
_denied("ustat", "ustat", 0, _room)
_denied("sysfs", "sysfs", 3)
_denied("sysctl", "_sysctl", _room)
_denied("lookup_dcookie", "lookup_dcookie", 0, _room, 64)
_denied("nfsservctl", "nfsservctl", 0, _NULL, _NULL)
_denied("move_pages", "move_pages", 0, 0, _NULL, _NULL, _NULL, 0)
_denied("migrate_pages", "migrate_pages", 0, 64, _room, _room)
_denied("lsm_set_self_attr", "lsm_set_self_attr", 100, _zeros, 32, 0)

_denied("add_key", "add_key", b"user\0", b"planted\0", b"x", 1, -3, promise="S307")
_denied("request_key", "request_key", b"user\0", b"planted\0", b"x\0", -3, promise="S307")
_denied("keyctl_join", "keyctl", 1, b"planted\0", promise="S307")
_denied("keyctl_describe", "keyctl", 6, -4, _room, 512, promise="S307")
_denied("keyctl_read_session", "keyctl", 11, -3, _room, 512, promise="S307")

_denied("kexec_load", "kexec_load", 0, 0, _NULL, 0, promise="S308")
_denied("kexec_file_load", "kexec_file_load", -1, -1, 0, _NULL, 0, promise="S308")
_denied("init_module", "init_module", _room, 0, b"\0", promise="S308")
_denied("finit_module", "finit_module", 0, b"\0", 0, promise="S308")
_denied("delete_module", "delete_module", b"planted\0", 0, promise="S308")
_denied("create_module", "create_module", b"planted\0", 4096, promise="S308")
_denied("swapon", "swapon", b"/tmp/swap\0", 0, promise="S308")
_denied("swapoff", "swapoff", b"/tmp/swap\0", promise="S308")
_denied("reboot", "reboot", 0, 0, 0, _NULL, promise="S308")
_denied("syslog_read", "syslog", 3, _room, 512, promise="S308")
_denied("syslog_size", "syslog", 10, _NULL, 0, promise="S308")
_denied("sethostname", "sethostname", b"planted", 7, promise="S308")
_denied("setdomainname", "setdomainname", b"planted", 7, promise="S308")
_denied("vhangup", "vhangup", promise="S308")
_denied("acct", "acct", b"/tmp/acct\0", promise="S308")


def _clock(name: str, call: str, *arguments: object) -> None:
    @attack("S309", "EPERM", name=name)
    def tried(_: Arena) -> Pair:
        before = time.time()
        return syscall(call, *arguments), outcome(lambda: time.clock_gettime(time.CLOCK_REALTIME) - before)


_clock("settimeofday", "settimeofday", _zeros, _NULL)
_clock("clock_settime", "clock_settime", 0, _zeros)
_clock("adjtimex", "adjtimex", _room)
_clock("clock_adjtime", "clock_adjtime", 0, _room)


def _personality(name: str, value: int) -> None:
    @attack("S310", "EPERM", name=f"personality_{name}")
    def tried(_: Arena) -> Pair:
        return syscall("personality", value), syscall("personality", _PERSONALITY_QUERY)


_personality("read_implies_exec", _READ_IMPLIES_EXEC)
_personality("no_randomization", _ADDR_NO_RANDOMIZE)
_personality("linux32", _PER_LINUX32)
_personality("uname26", _UNAME26)
_personality("no_randomization_with_a_high_bit", _ADDR_NO_RANDOMIZE | 1 << 40)


@attack("S311", "ENOSYS")
def x32_call(_: Arena) -> Pair:
    """Another numbering under the same architecture: x86_64 alone has it. Elsewhere the number is simply too high."""
    return syscall(0x40000000 | 39), syscall("getpid")


@attack("S311", "ENOSYS")
def x32_open(_: Arena) -> Pair:
    return syscall(0x40000000 | 2, b"/etc/shadow\0", 0, 0), syscall("getpid")


@attack("S311", "ENOSYS")
def number_out_of_range(_: Arena) -> Pair:
    found = {syscall(number) for number in (0x40000000 | 512, 0x40000000 | 547, 9999, 0x7FFFFFFF)}
    return found.pop() if len(found) == 1 else str(found), syscall("getpid")


@attack("S311", "SIGSYS", "SIGSEGV", "ENOEXEC")
def ia32_call_by_interrupt(_: Arena) -> Pair:
    """`int 0x80` takes the 32-bit table, where 20 is getpid. Where the kernel has no such table it is a fault."""
    if os.uname().machine != "x86_64":
        return "ENOEXEC", "done"
    return in_child(lambda: _run(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")), in_child(
        lambda: _run(b"\xb8\x27\x00\x00\x00\x0f\x05\xc3")  # the same by `syscall`, where 39 is getpid
    )


@attack("S311", "SIGSYS", "SIGSEGV", "ENOEXEC")
def ia32_program(_: Arena) -> Pair:
    """A whole 32-bit program, written byte by byte: its very first call ends it."""
    if os.uname().machine != "x86_64":
        return "ENOEXEC", "done"
    # mov eax, 1 (exit); xor ebx, ebx; int 0x80
    small = _elf(32, b"\xb8\x01\x00\x00\x00\x31\xdb\xcd\x80")
    # mov eax, 60 (exit); xor edi, edi; syscall
    large = _elf(64, b"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05")
    return _execute(small), _execute(large)


def _run(code: bytes) -> int:
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return int(ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())


def _elf(bits: int, code: bytes) -> bytes:
    """A static program of one segment, readable and executable, that is all of the file. Source: elf(5)."""
    import struct  # noqa: PLC0415 - the one use

    base = 0x400000
    if bits == 32:
        head, program = 52, 32
        entry = base + head + program
        size = head + program + len(code)
        return (
            b"\x7fELF\x01\x01\x01" + bytes(9)
            + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, entry, head, 0, 0, head, program, 1, 0, 0, 0)
            + struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096)
            + code
        )  # fmt: skip
    head, program = 64, 56
    entry = base + head + program
    size = head + program + len(code)
    return (
        b"\x7fELF\x02\x01\x01" + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, entry, head, 0, 0, head, program, 1, 0, 0, 0)
        + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
        + code
    )  # fmt: skip


def _execute(program: bytes) -> str:
    """Run it from memory: how it ended, or why it could not be run."""
    fd = os.memfd_create("program", 0)
    os.write(fd, program)
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.execve(fd, ["program"], {})
        except OSError as error:
            os.write(write, errno.errorcode[error.errno or 0].encode())
        os._exit(1)
    os.close(write)
    refused = os.read(read, 64).decode()
    _, status = os.waitpid(pid, 0)
    if refused:
        return refused
    import signal  # noqa: PLC0415 - the one use

    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "done"
