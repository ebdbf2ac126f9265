"""From a policy and a program to a process that is held: the one way in.

In order: check the policy, find what enforces it, make a cgroup, start bubblewrap, which waits for its arguments until
it is in the cgroup, then builds the sandbox (namespaces, mounts, seccomp) and starts the inner stage (limits, identity,
capabilities, Landlock, descriptors), which becomes the program. Each inner step reports
over the status pipe, and the receipt is made of these reports.
"""

from __future__ import annotations

import functools
import os
import platform
import select
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from fumehood_sandbox import landlock_only
from fumehood_sandbox.backend import Backend
from fumehood_sandbox.cgroup import NONE as NO_CGROUPS
from fumehood_sandbox.cgroup import Cgroups, Control, Leaf, cgroups
from fumehood_sandbox.errors import LaunchError, PolicyError, SandboxUnavailableError
from fumehood_sandbox.outside import bubblewrap
from fumehood_sandbox.outside.bubblewrap_arguments import landlock_ruleset, layout_arguments
from fumehood_sandbox.outside.bubblewrap_process import SandboxedProcess
from fumehood_sandbox.outside.cgroup_attach import Entrance, Stepped
from fumehood_sandbox.outside.grants import CheckedPolicy, check_policy
from fumehood_sandbox.outside.identity import Identity, identity_for, owner_namespace
from fumehood_sandbox.outside.landlock import supported_abi
from fumehood_sandbox.outside.launching import Launching
from fumehood_sandbox.outside.stage_files import inner_file, memory_file, outer_file, stage_command
from fumehood_sandbox.policy import Policy
from fumehood_sandbox.program import Executable, Program, PythonModule
from fumehood_sandbox.receipt import Layer, Receipt
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list, encode, filter_program

_READABLE = stat.S_IROTH | stat.S_IXOTH
_WRITABLE = _READABLE | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that a start needs, found and checked."""

    checked: CheckedPolicy
    program: Program
    bwrap: str
    filter_bytes: bytes
    landlock_abi: int
    identity: Identity
    cgroups: Cgroups
    control_fd: int | None
    """Where a program that forks by order gets its orders."""


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
        return _spawn(_plan(policy, program, stack, control_fd), stack)


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


def _plan(policy: Policy, program: Program, stack: ExitStack, control_fd: int | None = None) -> _Plan:
    return _Plan(
        check_policy(policy, stack),
        program,
        bwrap=bubblewrap.find(),
        filter_bytes=_seccomp_filter(relay=policy.relay, forks=control_fd is not None),
        landlock_abi=_landlock_abi(),
        identity=identity_for(policy.identity),
        cgroups=cgroups() if policy.cgroups else NO_CGROUPS,
        control_fd=control_fd,
    )


def _check_program(program: Program) -> None:
    texts = program.argv if isinstance(program, Executable) else (program.module, *program.argv, *program.path)
    if isinstance(program, Executable) and not program.argv:
        raise PolicyError("program", "an executable needs at least its name")
    if any("\0" in text for text in texts):
        raise PolicyError("program", "NUL can't be part of an argument")


@functools.cache
def _seccomp_filter(*, relay: bool, forks: bool) -> bytes:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailableError(
            "seccomp", f"there is no filter for {machine}", f"run on {' or '.join(ARCHITECTURES)}"
        )
    return encode(filter_program(deny_list(relay=relay, forks=forks), ARCHITECTURES[machine]))


def _landlock_abi() -> int:
    abi = supported_abi()
    if abi < 1:
        raise SandboxUnavailableError(
            "landlock", "the kernel has none", "use Linux 5.13 or later with landlock among its LSMs (boot option lsm=)"
        )
    return abi


def _spawn(plan: _Plan, stack: ExitStack) -> Launching:
    leaf = plan.cgroups.leaf(plan.checked.policy.limits)
    try:
        return _spawn_in(leaf, plan, stack)
    except BaseException:
        if leaf is not None:
            leaf.discard()
        raise


def _spawn_in(leaf: Leaf | None, plan: _Plan, stack: ExitStack) -> Launching:
    """Start bubblewrap. No preexec_fn: the launcher has threads, and between fork and exec none may run Python code."""
    checked, identity = plan.checked, plan.identity
    status_read, status_write = _pipe(stack)
    info_read, info_write = _pipe(stack)
    forks = plan.control_fd is not None
    ruleset = landlock_ruleset(checked, plan.landlock_abi, forks=forks)
    bounded = leaf.controls if leaf is not None else frozenset()
    ours, theirs = _relay_channel(stack) if checked.policy.relay else (None, None)
    relay_fd = theirs.fileno() if theirs is not None else None
    stage_fd = inner_file(
        checked,
        plan.program,
        identity,
        ruleset,
        status_fd=status_write,
        bounded=bounded,
        relay_fd=relay_fd,
        control_fd=plan.control_fd,
    )
    _owned(stack, stage_fd)
    filter_fd = _owned(stack, memory_file("fumehood-seccomp", plan.filter_bytes))
    shared = identity.user_namespace_fd is not None
    arguments = [
        *bubblewrap.unshare_flags(shared_user_namespace=shared),
        *(("--userns", str(identity.user_namespace_fd)) if shared else ()),
        *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"),
        # A symbol that is looked up at its first use would be looked up by each child anew.
        *(("--setenv", "LD_BIND_NOW", "1") if forks else ()),
        # What the inner stage needs to take on its identity and to empty the bounding set; it gives all of it up.
        *("--cap-drop", "ALL", "--cap-add", "CAP_SETPCAP"),
        *(("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID") if shared else ()),
        *("--seccomp", str(filter_fd), "--info-fd", str(info_write)),
        *layout_arguments(checked, forks=forks),
    ]
    # Over a descriptor, since anybody inside can read the command line of pid 1.
    encoded = "\0".join((*arguments, "")).encode()
    doorway = plan.cgroups.doorway if leaf is not None else None
    gate_fd = None
    if leaf is None or doorway is not None:
        arguments_fd = _owned(stack, memory_file("fumehood-arguments", encoded))
    else:
        arguments_fd, gate_fd = _pipe(stack)
    inherited = [status_write, info_write, stage_fd, filter_fd, arguments_fd]
    inherited += [grant.fd for grant in (*checked.read, *checked.write)]
    inherited += [fd for fd in (identity.user_namespace_fd, relay_fd, plan.control_fd) if fd is not None]
    command = [plan.bwrap, "--args", str(arguments_fd), "--", *stage_command(stage_fd)]
    mapped = list(_to_be_mapped(plan, stack))
    if mapped:
        outer_fd = _owned(stack, outer_file(mapped, command, status_write))
        inherited += [outer_fd, *(fd for _, *fds in mapped for fd in fds)]
        command = stage_command(outer_fd)
    entrance: Entrance | Stepped | None = None
    if leaf is not None and doorway is not None:
        popen = doorway.run(leaf, functools.partial(_run, command, inherited))
        entrance = Stepped(leaf)
    else:
        popen = _run(command, inherited)
        if leaf is not None and gate_fd is not None:
            entrance = Entrance(leaf, popen, os.dup(gate_fd), encoded)
    receipt = Receipt(
        checked.policy.level,
        "bubblewrap",
        checked.policy.digest(),
        (
            Layer("namespaces", ", ".join(bubblewrap.NAMESPACES)),
            Layer("environment", f"{len(checked.policy.environment)} variables, none inherited"),
            *_cgroup_layer(leaf, plan),
        ),
    )
    os.set_blocking(status_read, False)
    os.set_blocking(info_read, False)
    channel = ours.dup() if ours is not None else None
    return Launching(popen, os.dup(status_read), os.dup(info_read), receipt, entrance, relay_channel=channel)


def _cgroup_layer(leaf: Leaf | None, plan: _Plan) -> tuple[Layer, ...]:
    """What the leaf does. What it doesn't, limits of each process do: see `Launching`."""
    if leaf is None:
        return ()
    limits = plan.checked.policy.limits
    said = {
        Control.MEMORY: f"memory {limits.memory_bytes} bytes without swap",
        Control.PROCESSES: f"{limits.processes} processes",
        Control.TIME: "time counted",
        Control.SHARE: "equal share of the processors",
        Control.KILL: "killed as one",
    }
    by = {control: parent.mechanism.name for parent in plan.cgroups.parents for control in parent.controls}
    detail = ", ".join(f"{text} ({by[control]})" for control, text in said.items() if control in leaf.controls)
    return (Layer("cgroup", detail),)


def _to_be_mapped(plan: _Plan, stack: ExitStack) -> Iterator[tuple[str, int, int]]:
    """Path, descriptor and mapping of what the program's user could not use as it is.

    Only where that isn't the launcher's own user. What root's umask closed to everybody else is opened by showing its
    owner as the program's user; what lies deeper and is closed once more has the same owner, as a rule.
    """
    identity = plan.identity
    if identity.user_namespace_fd is None:
        return
    grants = ((plan.checked.read, _READABLE), (plan.checked.write, _WRITABLE))
    for pinned, needed in grants:
        for grant in pinned:
            if grant.owner != identity.user and not _has(grant.mode, needed):
                yield grant.path, grant.fd, owner_namespace(grant.owner, grant.group, identity)
    for mount in plan.checked.runtime:
        if mount.source:
            found = os.stat(mount.source)  # noqa: PTH116 - many, on the way to every start
            if found.st_uid != identity.user and not _has(found.st_mode, _READABLE):
                real = os.path.realpath(mount.source)
                fd = _owned(stack, os.open(real, os.O_PATH | os.O_CLOEXEC))
                yield real, fd, owner_namespace(found.st_uid, found.st_gid, identity)


def _has(mode: int, needed: int) -> bool:
    """Whether everybody has these rights. Only folders need the right to be entered."""
    wanted = needed if stat.S_ISDIR(mode) else needed & ~stat.S_IXOTH
    return mode & wanted == wanted


def _run(command: list[str], inherited: list[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=inherited,
            env={},  # its own environment stays readable in /proc/1/environ, whatever --clearenv says
            cwd="/",
            process_group=0,  # so that what isn't fit to die with its parent yet can be killed; see Launching
            bufsize=0,
        )
    except OSError as error:
        raise LaunchError("bubblewrap", error.strerror or "", path=command[0], errno=error.errno or 0) from error


def _relay_channel(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """A pair by which the inner stage hands out the relay's socket: descriptors go through sockets alone (unix(7))."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    return stack.enter_context(ours), stack.enter_context(theirs)


def _pipe(stack: ExitStack) -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    return _owned(stack, read), _owned(stack, write)


def _owned(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd
