"""Runs pieces of Python inside a real sandbox and takes home what they found."""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from fumehood_sandbox import Backend, Level, Mount, Policy, PythonModule, SandboxedProcess, launch

BOUND_S = 60.0
"""For every wait of these tests: far above what anything here takes, so that only a hang meets it."""
CODE = "/run/fumehood/test"

PRELUDE = """
import ctypes, errno, json, os, signal, socket, stat, subprocess, sys
def report(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
def error_of(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "done"
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
def syscall(number, *arguments):
    longs = [ctypes.c_long(each) if isinstance(each, int) else each for each in (number, *arguments)]
    answer = _syscall(*longs)
    return "done" if answer >= 0 else errno.errorcode.get(ctypes.get_errno())
"""


@contextmanager
def running(
    folder: Path, code: str, policy: Policy | None = None, *, backend: Backend | None = None
) -> Iterator[SandboxedProcess]:
    """A sandbox in which this code runs as a module. Closed at the end."""
    source = folder / "inside_code"
    source.mkdir(exist_ok=True)
    (source / "inside.py").write_text(PRELUDE + textwrap.dedent(code), encoding="utf-8")
    policy = policy or Policy(level=Level.NONE)
    policy = replace(policy, runtime=(*policy.runtime, Mount(str(source), CODE)))
    with launch(policy, PythonModule("inside", path=(CODE,)), timeout_s=BOUND_S, backend=backend) as process:
        yield process


def inside(folder: Path, code: str, policy: Policy | None = None) -> Any:
    """Run the code to its end and return the one thing that it reported."""
    with running(folder, code, policy) as process:
        out, err = read_to_end(process)
        assert process.wait(BOUND_S) == 0, err
    return json.loads(out)


def read_to_end(process: SandboxedProcess) -> tuple[str, str]:
    parts = {process.stdout: bytearray(), process.stderr: bytearray()}
    left = set(parts)
    while left:
        for fd in readable(*left):
            part = os.read(fd, 65536)
            parts[fd] += part
            if not part:
                left.discard(fd)
    return parts[process.stdout].decode(), parts[process.stderr].decode()


def read_line(fd: int) -> str:
    line = bytearray()
    while not line.endswith(b"\n"):
        readable(fd)
        part = os.read(fd, 1)
        assert part, f"the end after {line!r}"
        line += part
    return line.decode().rstrip("\n")


def readable(*fds: int) -> list[int]:
    """Wait until one can be read. A pidfd can be once its process has ended."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    ready = [fd for fd, _ in poller.poll(BOUND_S * 1000)]
    assert ready, "nothing came"
    return ready


def until_gone(pids: list[int]) -> None:
    """Wait until processes that may be nobody's children have ended."""
    fds = []
    for pid in pids:
        try:
            fds.append(os.pidfd_open(pid))
        except OSError as error:
            # EINVAL: it was reaped after the kernel had found its number; seen on Linux 6.1.
            if error.errno not in {errno.ESRCH, errno.EINVAL}:
                raise
    end = time.monotonic() + BOUND_S
    for fd in fds:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        assert poller.poll(max(end - time.monotonic(), 0) * 1000), "a process is left"
        os.close(fd)


def processes_below(pid: int) -> list[int]:
    """This process and all below it, as seen from outside; one that ends meanwhile may be among them."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def open_here() -> dict[int, str]:
    """This process's descriptors, and of what kind each is."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # what the folder was read by is closed again
            found[int(entry.name)] = str(entry.readlink()).partition(":")[0]
    return found


@contextmanager
def room_for(descriptors: int) -> Iterator[None]:
    """Within the block only so many more can be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fill: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_here()) + descriptors + 8, hard))
        with suppress(OSError):
            while True:
                fill.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(descriptors):
            os.close(fill.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fill:
            os.close(fd)
