"""Leaves at its import what calls would share, as the file beside it says; see `test_zygote`."""

import ctypes
import mmap
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

from fumehood_sdk import Plugin

plugin = Plugin("hostile", version="1.0.0")
kept: list[object] = []


def _system_v() -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    return libc.shmat(libc.shmget(4712, 4096, 0o1666), None, 0)


def _read_only_for_now() -> object:
    fd = os.memfd_create("kept")
    os.ftruncate(fd, 4096)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    place = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    os.close(fd)
    return place


def _file_mapped() -> int:
    """Not by `mmap`, which keeps a descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    fd = os.open(os.__file__, os.O_RDONLY)
    place: int = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    os.close(fd)
    return place


def _writable_later() -> object:
    """A file's page, read-only, and other memory in its place as soon as nobody looks."""
    libc = ctypes.CDLL(None, use_errno=True)
    place, page = ctypes.c_void_p(_file_mapped()), ctypes.c_size_t(4096)
    writable, fixed = mmap.PROT_READ | mmap.PROT_WRITE, 0x10
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | fixed
    os.register_at_fork(before=lambda: libc.mmap(place, page, writable, flags, -1, ctypes.c_long(0)))
    return place


def _helper_of_each_call() -> object:
    """A process that each child starts before it gives anything up, and so has what its zygote has."""

    def start() -> None:
        if not forked:
            forked.append(True)
            if os.fork() == 0:
                time.sleep(60)

    forked: list[bool] = []
    os.register_at_fork(after_in_child=start)
    return forked


def _file_with_an_odd_name() -> object:
    path = Path("/tmp/kept\tfor\tlater\n")  # noqa: S108 - scratch
    path.touch()
    return path.open()


DEEDS = {
    "nothing": lambda: None,
    "thread": lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(),
    "process": lambda: subprocess.Popen(["/bin/sleep", "60"]),
    "orphan": lambda: subprocess.Popen(["/usr/bin/setsid", "-f", "sleep", "60"]).wait(),
    "memory": lambda: mmap.mmap(-1, 4096),
    "memory that is read-only for now": _read_only_for_now,
    "memory that is writable later": _writable_later,
    "helper of each call": _helper_of_each_call,
    "file mapped read-only": _file_mapped,
    "System V memory": _system_v,
    "socket": socket.socketpair,
    "pipe": os.pipe,
    "memfd": lambda: os.memfd_create("kept"),
    "file with tabs in its name": _file_with_an_odd_name,
    "file": lambda: open("/tmp/kept", "w"),  # noqa: S108, SIM115, PTH123 - it is to stay open
    "file in shm": lambda: open("/dev/shm/kept", "w"),  # noqa: S108, SIM115, PTH123
}

kept.append(DEEDS[(Path(__file__).parent / "deed").read_text()]())


@plugin.tool(side_effects="none", isolation="call")
def run(code: str) -> str:
    """Say that it got as far as this."""
    return code
