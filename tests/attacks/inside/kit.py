"""What every family of attacks shares. Runs inside a sandbox, on the standard library alone.

An attack is a function that tries something which must fail, and something beside it which must work, and answers with
both outcomes: "done", the name of an error number, or what the attack itself makes of it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.attacks.inside.numbers import number

DONE = "done"
ABSENT = "no such call here"
Pair = tuple[str, str]
RELAY = "relay"
"""Level external with a relay for programs that only know proxy variables: they have TCP sockets."""
READING = ("read", "write", "external", RELAY)
WRITING = ("write", "external", RELAY)
EVERYWHERE = ("none", "read", "write", "external", RELAY)


@dataclass(frozen=True)
class Arena:
    """Where the attacks take place: what is granted, what is not, and who is outside."""

    level: str
    read: str
    """A folder granted for reading with `file` in it; empty below level read."""
    write: str
    """A folder granted for writing with `file` in it; empty below level write."""
    outside: str
    """A folder beside the grants, with `canary` in it, that everybody could read and write."""
    home: str
    """A home folder of the launcher's: `.ssh/id` and `venv/bin/python` lie in it."""
    outside_pids: tuple[int, ...]
    """The launcher, and the processes of a sandbox beside this one, as the host numbers them."""
    host_uid: int
    """The launcher's user."""
    lure: str
    """The name of what the launcher left for everybody to find: an abstract socket, a file of /dev/shm, a queue."""
    lure_port: int
    """The TCP port on which the launcher listens, on its own loopback address."""
    lure_key: int
    """The key of its System V memory, queue and semaphores."""

    @property
    def own(self) -> str:
        """A folder that may be written to at this level."""
        return self.write or "/tmp"


@dataclass(frozen=True)
class Attack:
    """One of a family."""

    name: str
    promise: str
    """The promise of docs/sandbox.md that it would break."""
    denied: frozenset[str]
    """The outcomes that count as a denial. "done" is never among them."""
    run: Callable[[Arena], Pair]
    levels: tuple[str, ...]


def attack(
    promise: str, *denied: str, name: str = "", levels: tuple[str, ...] = EVERYWHERE
) -> Callable[[Callable[[Arena], Pair]], Callable[[Arena], Pair]]:
    """Add the function to its module's `ATTACKS`."""

    def add(function: Callable[[Arena], Pair]) -> Callable[[Arena], Pair]:
        family = function.__globals__.setdefault("ATTACKS", [])
        chosen = name or function.__name__
        assert DONE not in denied, chosen
        assert chosen not in {each.name for each in family}, f"{chosen} is there twice"
        family.append(Attack(chosen, promise, frozenset(denied), function, levels))
        return function

    return add


def outcome(action: Callable[[], object]) -> str:
    """What became of a Python call: "done", or the error's name."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    except ValueError as error:  # resource.setrlimit says EPERM and EINVAL so
        return f"ValueError: {error}"
    return DONE


_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def answer(name: str | int, *arguments: object) -> int:
    """What the kernel answers: at least 0, or the negative error number. Integers go as whole registers."""
    wanted = name if isinstance(name, int) else number(name)
    assert wanted is not None, f"{name} does not exist on this architecture"
    longs = [ctypes.c_long(each) if isinstance(each, int) else each for each in (wanted, *arguments)]
    ctypes.set_errno(0)
    found = int(_syscall(*longs))
    return found if found >= 0 else -ctypes.get_errno()


def syscall(name: str | int, *arguments: object) -> str:
    """What became of a system call: "done", or the error's name. ABSENT where the architecture doesn't have it."""
    if isinstance(name, str) and number(name) is None:
        return ABSENT
    found = answer(name, *arguments)
    return DONE if found >= 0 else errno.errorcode.get(-found, str(-found))


def in_child(action: Callable[[], object]) -> str:
    """Run it in a child: "done", or how the child ended. For what ends whoever tries it, or would change them."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name + (" and dumped" if os.WCOREDUMP(status) else "")
    return DONE if os.WEXITSTATUS(status) == 0 else f"exit {os.WEXITSTATUS(status)}"


def write_file(path: str, text: str = "x") -> None:
    """Open for writing, or make, and write."""
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def read_file(path: str) -> str:
    """All of it, as text."""
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()
