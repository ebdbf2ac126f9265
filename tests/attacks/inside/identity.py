"""Root, capabilities, and the ways in which a process gains them."""

from __future__ import annotations

import ctypes
import os

from tests.attacks.inside.kit import Arena, Pair, attack, outcome, read_file, syscall

_LAST_CAPABILITY = 40
_PR_CAPBSET_READ, _PR_SET_KEEPCAPS, _PR_SET_SECUREBITS = 23, 8, 28
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_SET_DUMPABLE = 38, 39, 22, 4
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2


def _status() -> dict[str, str]:
    return {
        line.split(":")[0]: line.split(":")[1].strip()
        for line in read_file("/proc/self/status").splitlines()
        if ":" in line
    }


def _capability_set(name: str) -> None:
    @attack("S501", "empty", name=f"{name}_is_empty")
    def looked(_: Arena) -> Pair:
        value = _status()[name]
        return "empty" if int(value, 16) == 0 else value, "done" if "CapBnd" in _status() else "no sets are shown"


for _name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    _capability_set(_name)


@attack("S501", "in force")
def no_new_privileges(_: Arena) -> Pair:
    """Set, and nobody can take it back: the one way to unset it doesn't exist."""
    undone = syscall("prctl", _PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
    held = _status()["NoNewPrivs"] == "1" and undone == "EINVAL"
    return "in force" if held else undone, syscall("prctl", _PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)


@attack("S501", "in force")
def filter_is_in_force(_: Arena) -> Pair:
    """And stays: a filter can be added, and none taken away."""
    before = _status()
    undone = syscall("prctl", _PR_SET_SECCOMP, 0, 0, 0, 0)
    held = before["Seccomp"] == "2" and undone == "EINVAL" and _status()["Seccomp_filters"] == before["Seccomp_filters"]
    return "in force" if held else str(before), syscall("prctl", 3, 0, 0, 0, 0)


def _become(name: str, action: object) -> None:
    @attack("S502", "EPERM", "EINVAL", name=f"become_{name}")
    def tried(_: Arena) -> Pair:
        return outcome(action), outcome(lambda: os.setresuid(os.getuid(), os.getuid(), os.getuid()))  # type: ignore[arg-type] # lambdas


_become("root", lambda: os.setuid(0))
_become("effective_root", lambda: os.seteuid(0))
_become("saved_root", lambda: os.setresuid(-1, -1, 0))
_become("roots_group", lambda: os.setgid(0))
_become("another_group", lambda: os.setgroups([0, 42]))
_become("another_user", lambda: os.setuid(1))
_become("another_plugin", lambda: os.setuid(0x70000001))
_become("nobody", lambda: os.setresuid(65534, 65534, 65534) if os.getuid() != 65534 else os.setuid(1))


@attack("S502", "not root")
def is_not_root(arena: Arena) -> Pair:
    ids = {*os.getresuid(), *os.getresgid()}
    return "not root" if 0 not in ids and (arena.host_uid or os.getuid() != 0) else str(ids), syscall("getpid")


@attack("S501", "EPERM")
def take_capabilities(_: Arena) -> Pair:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    full = (ctypes.c_uint32 * 6)(*([0xFFFFFFFF] * 6))
    return syscall("capset", ctypes.byref(header), ctypes.byref(full)), syscall(
        "capget", ctypes.byref(header), ctypes.byref(full)
    )


@attack("S501", "EPERM")
def raise_an_ambient_capability(_: Arena) -> Pair:
    found = syscall("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, 21, 0, 0)
    return found, syscall("prctl", _PR_CAPBSET_READ, _LAST_CAPABILITY, 0, 0, 0)


@attack("S501", "EPERM")
def change_the_secure_bits(_: Arena) -> Pair:
    return syscall("prctl", _PR_SET_SECUREBITS, 0x2F, 0, 0, 0), syscall("prctl", _PR_SET_KEEPCAPS, 0, 0, 0, 0)


@attack("S501", "unchanged")
def run_a_set_user_id_program(arena: Arena) -> Pair:
    """Where the runtime shows one (/usr/bin/su, mount, sudo), running it gives nothing: mounts are nosuid."""
    del arena
    text = read_file("/proc/self/mountinfo")
    lines = [line for line in text.splitlines() if "nosuid" not in line.split(" - ")[0]]
    return "unchanged" if not lines else str(lines), "done" if text else "no mounts are shown"


@attack("S501", "nodev")
def use_devices_from_other_mounts(_: Arena) -> Pair:
    """Only the five devices' own mounts may hold devices."""
    # What lies over /proc/locks where calls have processes of their own is /dev/null once more.
    devices = {"/proc/locks", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
    lines = [line.split() for line in read_file("/proc/self/mountinfo").splitlines()]
    free = {fields[4] for fields in lines if "nodev" not in fields[5].split(",")}
    return "nodev" if free <= devices else str(free - devices), outcome(lambda: open("/dev/zero", "rb").read(1))
