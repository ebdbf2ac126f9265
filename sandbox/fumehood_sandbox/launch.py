"""The launch of a program under a policy: chooses the backend and starts it."""

from __future__ import annotations

import functools
import select
import time
from contextlib import ExitStack

from fumehood_sandbox import landlock_only
from fumehood_sandbox.backend import Backend
from fumehood_sandbox.errors import LaunchError, PolicyError, SandboxUnavailableError
from fumehood_sandbox.outside import bubblewrap
from fumehood_sandbox.outside.bubblewrap_start import plan_start, start_bubblewrap
from fumehood_sandbox.outside.identity import identity_for
from fumehood_sandbox.outside.launching import Launching
from fumehood_sandbox.policy import Policy
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.program import Executable, Program, PythonModule


def start(policy: Policy, program: Program, *, backend: Backend | None = None) -> Launching:
    """Start a sandboxed process and come back at once: the caller polls `Launching` for the rest.

    Call it from a thread that lives as long as the process: the kernel ties --die-with-parent (PR_SET_PDEATHSIG) to the
    thread that started it, so the process dies with that thread.

    Without `backend` it is the strongest that can be had, and never weaker than the policy's minimum; a named one is
    used or the start refused.

    Raises:
        PolicyError: the policy must be changed.
        SandboxUnavailableError: this machine can't enforce it.
        LaunchError: bubblewrap could not be run.
    """
    return start_controlled(policy, program, None, backend=backend)


def start_controlled(
    policy: Policy, program: Program, control_fd: int | None, *, backend: Backend | None = None
) -> Launching:
    """The same for a program that forks, which gets this descriptor; see `ForkServer`. It stays the caller's."""
    _check_program(program)
    if (control_fd is not None) != (isinstance(program, PythonModule) and program.forks > 0):
        raise PolicyError("program", "a program that forks is started by ForkServer, and by nothing else")
    with ExitStack() as stack:
        if _chosen(policy.minimum, backend) is Backend.LANDLOCK:
            if control_fd is not None:
                raise SandboxUnavailableError("isolation", "forks by order need namespaces", "allow user namespaces")
            return landlock_only.start(policy, program, stack)
        return start_bubblewrap(plan_start(policy, program, stack, control_fd), stack)


def launch(
    policy: Policy, program: Program, *, timeout_s: float = 10.0, backend: Backend | None = None
) -> SandboxedProcess:
    """Start a sandboxed process and wait until every layer is in force and the program is about to run.

    Same thread rule and same choice of the backend as for `start`.

    Raises:
        PolicyError: the policy must be changed.
        SandboxUnavailableError: this machine can't enforce it.
        LaunchError: a step failed, or it took longer than `timeout_s`. Nothing is left running.
    """
    deadline = time.monotonic() + timeout_s
    launching = start(policy, program, backend=backend)
    try:
        poller = select.poll()
        poller.register(launching.fileno(), select.POLLIN)
        while (left_s := deadline - time.monotonic()) > 0:
            poller.poll(left_s * 1000)
            process = launching.advance()
            if process is not None:
                return process
    except BaseException:
        launching.abort()
        raise
    launching.abort()
    raise LaunchError("launch", f"not done after {timeout_s} s")


def _chosen(minimum: Backend, wanted: Backend | None) -> Backend:
    """The backend to use.

    Raises:
        SandboxUnavailableError: the wanted one is weaker than the minimum.
    """
    if minimum is Backend.NAMESPACES:
        if wanted is Backend.LANDLOCK:
            raise SandboxUnavailableError(
                "namespaces", "the policy's minimum is namespaces", "allow less with minimum = landlock"
            )
        return Backend.NAMESPACES
    if wanted is not None:
        return wanted
    return Backend.NAMESPACES if _namespaces_work() else Backend.LANDLOCK


@functools.cache
def _namespaces_work() -> bool:
    """Whether bubblewrap works, and root has users to give away in a namespace."""
    if not bubblewrap.works():
        return False
    try:
        identity_for("")
    except SandboxUnavailableError:
        return False
    return True


def _check_program(program: Program) -> None:
    texts = program.argv if isinstance(program, Executable) else (program.module, *program.argv, *program.path)
    if isinstance(program, Executable) and not program.argv:
        raise PolicyError("program", "an executable needs at least its name")
    if any("\0" in text for text in texts):
        raise PolicyError("program", "NUL can't be part of an argument")
