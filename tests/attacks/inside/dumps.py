"""Core dumps: a file of the program's memory, or a program of the host's that is fed with it, as root."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from tests.attacks.inside.kit import Arena, Pair, attack, in_child, outcome, syscall

_CORE = resource.RLIMIT_CORE
_HIGH = 1 << 40


@attack("S506", "no file")
def dump_core(arena: Arena) -> Pair:
    """The control: it does crash, and the kernel says that it dumped nothing, to a file or to a handler."""
    os.chdir(arena.own)
    before = set(os.listdir("."))
    ended = in_child(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    left = set(os.listdir(".")) - before
    return "no file" if not left else str(left), "done" if ended == "SIGSEGV" else ended


@attack("S506", "the limit that stops both")
def limit_of_core_dumps(_: Arena) -> Pair:
    """0 stops files alone. 1 byte stops files, which are larger, and makes the kernel give up on a handler as well."""
    limit = resource.getrlimit(_CORE)
    return "the limit that stops both" if limit == (1, 1) else str(limit), "done"


def _change(name: str, call: str, *arguments: object) -> None:
    @attack("S506", "unchanged", name=name)
    def tried(_: Arena) -> Pair:
        """Lowered to 0 it would let a handler run. The call says that it worked, since no core is what it asks for."""
        syscall(call, *arguments)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        found = resource.getrlimit(_CORE)
        return "unchanged" if found == (1, 1) else str(found), outcome(
            lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1] - 1))
        )


_none = (ctypes.c_uint64 * 2)(0, 0)
_much = (ctypes.c_uint64 * 2)(1 << 30, 1 << 30)
_change("lower_it", "setrlimit", _CORE, _none)
_change("lower_it_with_a_high_bit", "setrlimit", _CORE | _HIGH, _none)
_change("raise_it", "setrlimit", _CORE, _much)
_change("lower_it_by_prlimit", "prlimit64", 0, _CORE, _none, 0)
_change("lower_it_by_prlimit_with_a_high_bit", "prlimit64", 0, _CORE | _HIGH, _none, 0)


@attack("S506", "unchanged")
def lower_it_from_a_round_address(_: Arena) -> Pair:
    """The new limit at an address whose low half is 0, where a filter that looks at one half sees no new limit."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    place = libc.mmap(1 << 32, 4096, 3, 0x100000 | 0x22, -1, 0)  # MAP_FIXED_NOREPLACE, private, anonymous: zeros
    assert place == 1 << 32
    syscall("prlimit64", 0, _CORE, place, 0)
    found = resource.getrlimit(_CORE)
    return "unchanged" if found == (1, 1) else str(found), outcome(lambda: resource.getrlimit(_CORE))


@attack("S506", "unchanged")
def lower_it_for_a_child(_: Arena) -> Pair:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    syscall("prlimit64", pid, _CORE, _none, 0)
    found = resource.prlimit(pid, _CORE)
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return "unchanged" if found == (1, 1) else str(found), outcome(
        lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    )
