"""What the launcher has and the program must not get: environment, descriptors, terminals, sessions."""

from __future__ import annotations

import ctypes
import os
import stat
import sys

from tests.attacks.inside.kit import RELAY, Arena, Pair, attack, outcome, read_file, syscall

_TIOCSTI, _TIOCLINUX, _TIOCSCTTY, _TIOCSETD, _TIOCSWINSZ, _FIONREAD = 0x5412, 0x541C, 0x540E, 0x5423, 0x5414, 0x541B


@attack("S503", "only what was given")
def environment(arena: Arena) -> Pair:
    """The test's own has a canary in it."""
    found = {name: value for name, value in os.environ.items() if arena.level != RELAY or "proxy" not in name.lower()}
    return "only what was given" if found == {"GIVEN": "yes"} else str(found), "done" if found["GIVEN"] else ""


@attack("S503", "only what was given")
def environment_as_the_kernel_has_it(_: Arena) -> Pair:
    """What the process was started with stays readable in /proc, whatever it does to its copy.

    bubblewrap sets PWD, and the launcher LD_BIND_NOW for a zygote's loader: the same everywhere, and nobody's.
    """
    text = read_file("/proc/self/environ")
    names = {entry.split("=")[0] for entry in text.replace("LD_BIND_NOW=1\0", "").split("\0") if entry}
    return "only what was given" if names <= {"GIVEN", "PWD"} else str(names), "done"


@attack("S504", "three pipes")
def descriptors(_: Arena) -> Pair:
    listing = [int(name) for name in os.listdir("/proc/self/fd")]
    left = []
    for fd in listing:
        try:
            left.append((fd, stat.S_IFMT(os.fstat(fd).st_mode)))
        except OSError:
            continue
    # Those of the runner: the pipe on which this very answer goes out, and its other end.
    own = [(fd, kind) for fd, kind in left if fd in {0, 1, 2}]
    others = [os.readlink(f"/proc/self/fd/{fd}") for fd, _ in left if fd > 2]
    good = own == [(fd, stat.S_IFIFO) for fd in (0, 1, 2)] and all(each.startswith("pipe:") for each in others)
    return "three pipes" if good else f"{left} {others}", "done" if sys.stdin else "no input"


@attack("S504", "none")
def descriptors_that_lead_outside(_: Arena) -> Pair:
    """A folder's descriptor from outside would make `openat(fd, "..")` a way out."""
    leading = []
    for fd in range(1024):
        try:
            if stat.S_IFMT(os.fstat(fd).st_mode) != stat.S_IFIFO:
                leading.append(fd)
        except OSError:
            continue
    return "none" if not leading else str(leading), outcome(lambda: os.fstat(0))


def _terminal(name: str, command: int) -> None:
    @attack("S505", "EPERM", name=name)
    def tried(_: Arena) -> Pair:
        read, _write = os.pipe()
        return syscall("ioctl", 0, command, b"x"), syscall("ioctl", read, _FIONREAD, ctypes.create_string_buffer(8))


for _name, _command in {"type": _TIOCSTI, "paste": _TIOCLINUX}.items():
    _terminal(f"{_name}_into_a_terminal", _command)
    for _bit in (32, 33, 40, 63):
        _terminal(f"{_name}_into_a_terminal_with_bit_{_bit}", _command | 1 << _bit)


@attack("S505", "ENXIO", "ENOENT")
def open_the_terminal(_: Arena) -> Pair:
    paths = ("/dev/tty", "/dev/console", "/dev/ptmx", "/dev/pts", "/dev/tty0", "/dev/vcs", "/dev/pts/ptmx")
    for path in paths:
        if (found := outcome(lambda path=path: os.open(path, os.O_RDWR | os.O_NOCTTY))) not in {"ENXIO", "ENOENT"}:
            return f"{path}: {found}", ""
    return "ENOENT", outcome(lambda: os.open("/dev/null", os.O_RDWR))


@attack("S505", "none")
def session_of_the_launcher(_: Arena) -> Pair:
    """No terminal, and a session that began inside: 0 stands for one outside."""
    fields = read_file("/proc/self/stat").rpartition(")")[2].split()
    terminal, session = int(fields[4]), os.getsid(0)
    return "none" if terminal == 0 and session > 0 else f"terminal {terminal}, session {session}", outcome(os.getpgrp)
