"""The start of bubblewrap: everything it needs is found and checked, written for it, and then it is spawned.

In order: check the policy, find what enforces it, make a cgroup, write the stages' files, and spawn bubblewrap in the
cgroup. It builds the sandbox (namespaces, mounts, seccomp) and starts the inner stage (limits, identity, capabilities,
Landlock, descriptors), which becomes the program. Each inner step reports over the status pipe, and the receipt is made
of these reports.
"""

from __future__ import annotations

import functools
import os
import platform
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from fumehood_sandbox.cgroup import NONE as NO_CGROUPS
from fumehood_sandbox.cgroup import Cgroups, Control, Leaf, cgroups
from fumehood_sandbox.errors import SandboxUnavailableError
from fumehood_sandbox.outside import bubblewrap
from fumehood_sandbox.outside.bubblewrap_arguments import bubblewrap_arguments, landlock_ruleset
from fumehood_sandbox.outside.bubblewrap_launching import BubblewrapStart
from fumehood_sandbox.outside.cgroup_spawn import spawner_for
from fumehood_sandbox.outside.grants import CheckedPolicy, check_policy
from fumehood_sandbox.outside.identity import Identity, identity_for
from fumehood_sandbox.outside.idmap import idmapped_mounts
from fumehood_sandbox.outside.landlock import supported_abi
from fumehood_sandbox.outside.launching import Launching
from fumehood_sandbox.outside.stage_files import idmapped_mounts_file, inner_file, memory_file, stage_command
from fumehood_sandbox.policy import Policy
from fumehood_sandbox.program import Program
from fumehood_sandbox.receipt import Layer, Receipt
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list, encode, filter_program


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Everything that a start needs, found and checked."""

    checked: CheckedPolicy
    program: Program
    bwrap: str
    filter_bytes: bytes
    landlock_abi: int
    identity: Identity
    cgroups: Cgroups
    control_fd: int | None
    """Where a zygote gets its requests. None: the program doesn't fork by request."""


def plan_start(policy: Policy, program: Program, stack: ExitStack, control_fd: int | None = None) -> StartPlan:
    """Find and check everything. The grants stay open until the stack is closed.

    Raises:
        PolicyError: the policy must be changed.
        SandboxUnavailableError: this machine can't enforce it.
    """
    return StartPlan(
        check_policy(policy, stack),
        program,
        bwrap=bubblewrap.find(),
        filter_bytes=_seccomp_filter(relay=policy.relay, forks=control_fd is not None),
        landlock_abi=_landlock_abi(),
        identity=identity_for(policy.identity),
        cgroups=cgroups() if policy.cgroups else NO_CGROUPS,
        control_fd=control_fd,
    )


def start_bubblewrap(plan: StartPlan, stack: ExitStack) -> Launching:
    """Make the leaf and spawn bubblewrap in it. What only the start needs is closed with the stack.

    Raises:
        LaunchError: the leaf could not be made, or bubblewrap not be run. Neither is left.
    """
    policy = plan.checked.policy
    leaf = plan.cgroups.leaf(policy.limits, owner=policy.identity)
    try:
        return _start_in(leaf, plan, stack)
    except BaseException:
        if leaf is not None:
            leaf.discard()
        raise


def _start_in(leaf: Leaf | None, plan: StartPlan, stack: ExitStack) -> Launching:
    checked = plan.checked
    status_read, status_write = _pipe(stack)
    info_read, info_write = _pipe(stack)
    stdout_read, stdout_write = _pipe(stack)
    ours, theirs = _relay_channel(stack) if checked.policy.relay else (None, None)
    relay_fd = theirs.fileno() if theirs is not None else None
    bounded = leaf.controls if leaf is not None else frozenset[Control]()
    stage_fd = _owned(
        stack, _inner_file(plan, bounded, status_fd=status_write, stdout_fd=stdout_write, relay_fd=relay_fd)
    )
    filter_fd = _owned(stack, memory_file("fumehood-seccomp", plan.filter_bytes))
    arguments = bubblewrap_arguments(
        checked, plan.identity, filter_fd=filter_fd, info_fd=info_write, forks=plan.control_fd is not None
    )
    thread = plan.cgroups.joining_thread if leaf is not None else None
    spawner = spawner_for(leaf, thread, "\0".join((*arguments, "")).encode(), stack)
    command = [plan.bwrap, "--args", str(spawner.arguments_fd), "--", *stage_command(stage_fd)]
    inherited = [status_write, info_write, stdout_write, stage_fd, filter_fd, spawner.arguments_fd]
    inherited += [grant.fd for grant in (*checked.read, *checked.write)]
    inherited += [fd for fd in (plan.identity.user_namespace_fd, relay_fd, plan.control_fd) if fd is not None]
    mapped = list(idmapped_mounts(checked, plan.identity, stack))
    if mapped:
        mapping_fd = _owned(stack, idmapped_mounts_file(mapped, command, status_write))
        inherited += [mapping_fd, *(fd for mount in mapped for fd in (mount.fd, mount.user_namespace_fd))]
        command = stage_command(mapping_fd)
    os.set_blocking(status_read, False)
    os.set_blocking(info_read, False)
    receipt = _receipt(plan, leaf)
    with ExitStack() as kept:  # made before bubblewrap is started: with no descriptor left there is nothing to end
        kept_stdout, kept_info, kept_status = (_owned(kept, os.dup(fd)) for fd in (stdout_read, info_read, status_read))
        channel = kept.enter_context(ours.dup()) if ours is not None else None
        popen, attach = spawner.spawn(command, inherited)
        kept.pop_all()
    # bubblewrap's two processes keep 0, 1 and 2 for as long as they live, so the end of its stdout would only tell of
    # their death. They close every other descriptor.
    if popen.stdout is not None:
        popen.stdout.close()
    popen.stdout = os.fdopen(kept_stdout, "rb", buffering=0)
    return Launching(popen, kept_status, BubblewrapStart(popen, kept_info, receipt, attach, relay_channel=channel))


def _receipt(plan: StartPlan, leaf: Leaf | None) -> Receipt:
    """The layers that are in force before the inner stage runs."""
    policy = plan.checked.policy
    layers = (
        Layer("namespaces", ", ".join(bubblewrap.NAMESPACES)),
        Layer("environment", f"{len(policy.environment)} variables, none inherited"),
        *_cgroup_layer(leaf, plan),
    )
    return Receipt(policy.level, "bubblewrap", policy.digest(), layers)


def _inner_file(
    plan: StartPlan, bounded: frozenset[Control], *, status_fd: int, stdout_fd: int, relay_fd: int | None
) -> int:
    ruleset = landlock_ruleset(plan.checked, plan.landlock_abi, forks=plan.control_fd is not None)
    return inner_file(
        plan.checked,
        plan.program,
        plan.identity,
        ruleset,
        status_fd=status_fd,
        stdout_fd=stdout_fd,
        bounded=bounded,
        relay_fd=relay_fd,
        control_fd=plan.control_fd,
    )


@functools.cache
def _seccomp_filter(*, relay: bool, forks: bool) -> bytes:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailableError(
            "seccomp", f"there is no filter for {machine}", f"run on {' or '.join(ARCHITECTURES)}"
        )
    return encode(filter_program(deny_list(relay=relay, forks=forks, remounts=True), ARCHITECTURES[machine]))


def _landlock_abi() -> int:
    abi = supported_abi()
    if abi < 1:
        raise SandboxUnavailableError(
            "landlock", "the kernel has none", "use Linux 5.13 or later with landlock among its LSMs (boot option lsm=)"
        )
    return abi


def _cgroup_layer(leaf: Leaf | None, plan: StartPlan) -> tuple[Layer, ...]:
    """What the leaf does. What it doesn't, limits of each process do: see `StageReports`."""
    if leaf is None:
        return ()
    limits = plan.checked.policy.limits
    said = {
        Control.MEMORY: f"memory {limits.memory_bytes} bytes without swap",
        Control.PROCESSES: f"{limits.processes} processes",
        Control.TIME: "time counted",
        Control.QUOTA: f"{limits.cpus} processors",
        Control.SHARE: "equal share of the processors",
        Control.KILL: "killed as one",
    }
    by = {control: parent.version.name for parent in plan.cgroups.parents for control in parent.controls}
    detail = ", ".join(f"{text} ({by[control]})" for control, text in said.items() if control in leaf.controls)
    return (Layer("cgroup", detail),)


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
