"""The probe of forks: whether this machine can fork a process for each call, found by having one forked."""

from __future__ import annotations

import errno
import functools
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox.errors import LaunchError, PolicyError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.fork.server import ForkServer
from fumehood_sandbox.level import Level
from fumehood_sandbox.outside import bubblewrap
from fumehood_sandbox.policy import Mount, Policy
from fumehood_sandbox.program import PythonModule

_MODULE = Path(__file__).resolve().with_name("fork_selftest.py")
_INSIDE = "/run/fumehood/fork_selftest"
_TIMEOUT_S = 20.0
"""It takes a tenth of a second. A machine that needs this long is not one to serve from."""
_ANSWER_BYTES = 100
_KERNEL = "use Linux 5.9 or later and glibc"
_USER_NAMESPACES = (
    "a call's own process makes a user namespace without rights, also where root starts the sandbox: sysctl "
    "kernel.unprivileged_userns_clone=1 (Debian), or kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)


@dataclass(frozen=True, slots=True)
class IsolationProblem:
    """Why no process can be had for each call."""

    problem: str
    remedy: str


@functools.cache
def isolation_problem() -> IsolationProblem | None:
    """What stands in the way of a `ForkServer` here; None when nothing does. Asked of the machine once a process.

    The same thread rule as for `launch`.
    """
    policy = Policy(
        level=Level.NONE,
        runtime=(Mount(str(_MODULE), f"{_INSIDE}/fork_selftest.py"),),
        identity="fumehood fork_selftest",
    )
    try:
        answer = _fork_once(policy)
    except PolicyError as error:
        return IsolationProblem(str(error), "")
    except SandboxUnavailableError as error:
        return IsolationProblem(error.problem, error.remedy)
    except LaunchError as error:
        return IsolationProblem(f"{error.step}: {error.problem}", remedy_for(error.problem))
    except (SandboxError, OSError) as error:
        return IsolationProblem(str(error), _KERNEL)
    pid, user, entries = (*answer.decode("ascii", "replace").split(), "", "", "")[:3]
    if pid != "1" or entries != "0" or not user.isdigit():
        return IsolationProblem(f"a child came out wrong: {answer!r}", "report it with the output of this command")
    return None


def remedy_for(problem: str) -> str:
    """What an operator can do about what a fork failed with."""
    if os.strerror(errno.EPERM) in problem:
        return _USER_NAMESPACES
    return bubblewrap.remedy_for(problem) or _KERNEL


def _fork_once(policy: Policy) -> bytes:
    deadline = time.monotonic() + _TIMEOUT_S
    server = ForkServer(policy, PythonModule("fork_selftest", path=(_INSIDE,), forks=1))
    zygote = None
    try:
        while zygote is None:
            _await(server.launching.fileno(), deadline)
            zygote = server.launching.advance()
        server.start_supervisor(zygote)
        server.request_approval()
        _await(server.fileno(), deadline)
        server.receive_answer()
        server.request_child()
        _await(server.fileno(), deadline)
        child = server.receive_answer()
        if child is None:
            raise LaunchError("fork", "no child")
        with child:
            _await(child.stdout, deadline)
            return os.read(child.stdout, _ANSWER_BYTES)
    finally:
        server.launching.abort()
        server.close()
        if zygote is not None:
            zygote.close()


def _await(fd: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise LaunchError("fork", f"not done after {_TIMEOUT_S:g} s")
