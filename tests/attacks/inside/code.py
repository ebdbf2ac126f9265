"""Code that did not come with the program: it may run, and gains nothing by it."""

from __future__ import annotations

import glob
import os
import sys

from tests.attacks.inside.kit import Arena, Pair, attack, outcome, write_file

_PROBE = (
    "import errno, os, socket, sys\n"
    "held = []\n"
    "tried = lambda: socket.socket(socket.AF_UNIX), lambda: open('/proc/self/comm', 'w'), lambda: os.chroot('/tmp')\n"
    "for action in tried:\n"
    "    try:\n"
    "        action()\n"
    "    except OSError as error:\n"
    "        held.append(errno.errorcode[error.errno])\n"
    "status = open('/proc/self/status').read()\n"
    "held.append('NoNewPrivs:\\t1' in status and 'CapEff:\\t' + '0' * 16 in status)\n"
    "sys.stdout.write(repr(held))\n"
)
_HELD = repr(["EPERM", "EACCES", "EPERM", True])


def _probe_in(*command: str, descriptor: int | None = None, environment: dict[str, str] | None = None) -> str:
    """What a program found of the layers around it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        os.execve(descriptor if descriptor is not None else command[0], list(command), environment or {})
    os.close(write)
    found = os.read(read, 4096).decode()
    os.waitpid(pid, 0)
    return "held" if found == _HELD else found or "nothing was said"


def _interpreter() -> str:
    return os.path.realpath(sys.executable)


@attack("S312", "held")
def program_in_memory(_: Arena) -> Pair:
    """A program that lies in no file can be executed, and stays within every layer."""
    fd = os.memfd_create("program", 0)
    with open(_interpreter(), "rb") as stream:
        os.sendfile(fd, stream.fileno(), 0, os.fstat(stream.fileno()).st_size)
    return _probe_in("python", "-I", "-S", "-c", _PROBE, descriptor=fd), outcome(lambda: os.fstat(fd))


@attack("S312", "held", "nothing was said")
def loader_as_a_program(arena: Arena) -> Pair:
    """The dynamic loader maps a program that may not be executed; what it runs is held like any other."""
    copy = f"{arena.own}/loaded"
    with open(_interpreter(), "rb") as source, open(copy, "wb") as target:
        target.write(source.read())
    loaders = glob.glob("/lib64/ld-*.so.*") + glob.glob("/lib/*/ld-*.so.*") + glob.glob("/lib/ld-*.so.*")
    found = {_probe_in(loader, copy, "-I", "-S", "-c", _PROBE) for loader in loaders[:1]}
    control = outcome(lambda: os.stat(copy))
    os.unlink(copy)  # it takes much of scratch
    return found.pop() if found else "nothing was said", control


@attack("S312", "held")
def child_interpreter(arena: Arena) -> Pair:
    """With every variable that could change what it loads."""
    write_file(f"{arena.own}/sitecustomize.py", "")
    environment = {"LD_PRELOAD": f"{arena.own}/x.so", "LD_LIBRARY_PATH": arena.own, "PYTHONPATH": arena.own}
    found = _probe_in(_interpreter(), "-S", "-c", _PROBE, environment=environment)
    return found, outcome(lambda: os.stat(f"{arena.own}/sitecustomize.py"))


@attack("S312", "held")
def session_of_its_own(_: Arena) -> Pair:
    """A grandchild that left its session and group."""
    code = "import os\nif os.fork():\n    os.wait(); os._exit(0)\nos.setsid()\n" + _PROBE
    return _probe_in(_interpreter(), "-I", "-S", "-c", code), outcome(os.getpgrp)
