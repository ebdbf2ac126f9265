"""Runs one program and leaves nothing of it behind. Started by `run_python` in a fresh interpreter for each call.

stdin brings the program, preceded by its length in bytes as eight digits of hexadecimal, and stays open: its end asks
for the end of the program. stdout and stderr are the program's. The exit status is the program's as a shell counts it.

A forked child runs the program. This process only waits, and then ends whatever the child has started: as a "child
subreaper" (prctl(2)) it becomes the parent of every process whose own parent has died, so that none is out of reach.
"""

import contextlib
import ctypes
import linecache
import os
import select
import signal
import sys
import time
import traceback

NAME = "<code>"
SWEEP_S = 5.0
"""Bound on ending what the program left. A sweep takes milliseconds; processes that fork meanwhile need a few."""

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL = 3


def main() -> int:
    """Run the program on stdin; return the exit status, or let the child's own SystemExit pass."""
    size = int(_read(8), 16)
    code = _read(size)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    child = os.fork()
    if child == 0:
        _become_the_program(libc)
        return _run(code)
    status = _wait(child)
    sys.stdout.flush()
    return status


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise EOFError("the program did not come whole")
        data += piece
    return data


def _become_the_program(libc: ctypes.CDLL) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # A Landlock domain of its own: its members can't signal or trace processes outside it, so the program can end
    # neither its keeper nor the worker, nor reach into another call. Kernels before 6.12 know no scopes: there the
    # program can do that to its own sandbox, as every other process of a sandbox can.
    attributes = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL)
    ruleset = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)
    if ruleset >= 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # landlock_restrict_self(2) asks for it
        if libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
        os.close(ruleset)


def _run(code: bytes) -> int:
    """Execute the program as `python file` would. Its traceback shows its own lines and none of these."""
    try:
        source = code.decode()
        linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
        exec(compile(source, NAME, "exec", dont_inherit=True), {"__name__": "__main__", "__builtins__": __builtins__})  # noqa: S102 - its purpose
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is told on its stderr
        own = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, own)
        return 1
    return 0


def _wait(child: int) -> int:
    """Wait for the child's end or stdin's, then end all that is left. The child's status; 137 if it was ended here."""
    pidfd = os.pidfd_open(child)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(0, select.POLLIN)
    poll.poll()
    os.close(pidfd)
    deadline = time.monotonic() + SWEEP_S
    status = None
    while time.monotonic() < deadline:
        ended, status_now = _reap()
        status = status_now if ended == child else status
        if ended == 0:
            for pid in _descendants():
                _kill(pid)
        elif ended < 0:
            break
    else:
        print("processes of the program could not be ended", file=sys.stderr)
    if status is None:
        return 128 + signal.SIGKILL
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _reap() -> tuple[int, int]:
    """A process that has ended and its status; 0 when all live, -1 when there are none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return -1, 0


def _descendants() -> list[int]:
    """Every process below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in parentheses may hold anything; the parent is the second field after it (proc(5)).
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    below: set[int] = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return sorted(below - {os.getpid()})


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
