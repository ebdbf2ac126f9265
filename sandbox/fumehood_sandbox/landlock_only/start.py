"""The start without namespaces: Landlock, a stricter filter and limits, around a process group."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from fumehood_sandbox.errors import SandboxUnavailableError
from fumehood_sandbox.interpreter import stage_interpreter
from fumehood_sandbox.landlock_only.group_supervisor import STEP
from fumehood_sandbox.landlock_only.launching import GroupStart
from fumehood_sandbox.landlock_only.path_view import PathView, discard, make_path_view, runtime_rules
from fumehood_sandbox.limits import Limits
from fumehood_sandbox.outside import landlock
from fumehood_sandbox.outside.bubblewrap_arguments import DEVICES
from fumehood_sandbox.outside.grants import CheckedPolicy, check_policy
from fumehood_sandbox.outside.identity import user_for
from fumehood_sandbox.outside.launching import Launching, spawn_stage
from fumehood_sandbox.outside.rlimits import rlimits
from fumehood_sandbox.outside.stage_files import program_config, stage_command, stage_file
from fumehood_sandbox.policy import Policy
from fumehood_sandbox.program import Program
from fumehood_sandbox.receipt import Layer, Receipt
from fumehood_sandbox.seccomp import (
    ARCHITECTURES,
    deny_list,
    encode,
    filter_program,
    rules_without_namespaces,
    sealing_list,
)

_WEAKER_AS_THE_LAUNCHER = frozenset({"identity"})
"""Inner layers that are weaker where the program's user is the launcher's. The limits are in any case: no cgroup."""
LOWEST_ABI = 6
"""The first with scopes: without them nothing keeps signals from the user's other processes."""
_DOCUMENT = "docs/deploy/README.md says what each place needs"

_OWN_PROCESS = (
    *(
        f"/proc/self/{name}"
        for name in (
            *("auxv", "cgroup", "cmdline", "comm", "environ", "fd", "fdinfo", "io", "limits", "maps", "oom_score"),
            *("smaps_rollup", "stat", "statm", "status"),
        )
    ),
    "/proc/thread-self/children",  # of the first thread, which is the one that orphans are given to
)
"""What a program may read of itself. Not its task, net and mount files, which tell of the machine."""
_MACHINE = tuple(
    f"/proc/{name}"
    for name in (
        *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version"),
        *("sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/kernel/osrelease", "sys/kernel/pid_max"),
        *("sys/kernel/random", "sys/kernel/threads-max", "sys/vm/max_map_count", "sys/vm/overcommit_memory"),
    )
)
"""What runtimes ask of the machine at their start."""


def unavailable() -> SandboxUnavailableError | None:
    """Why this backend can't be had here. Looks; `probe` is what tries."""
    if platform.machine() not in ARCHITECTURES:
        return SandboxUnavailableError("seccomp", f"there is no filter for {platform.machine()}")
    abi = landlock.supported_abi()
    if abi < LOWEST_ABI:
        found = f"the kernel has ABI {abi}" if abi else "the kernel has none"
        return SandboxUnavailableError(
            "landlock", f"{found}, and without namespaces ABI {LOWEST_ABI} is needed", f"use Linux 6.12; {_DOCUMENT}"
        )
    return None


def start(policy: Policy, program: Program, stack: ExitStack) -> Launching:
    """Start it. As `fumehood_sandbox.start`, for a program that has been checked.

    Raises:
        PolicyError: the policy contradicts itself.
        SandboxUnavailableError: it asks for what this backend can't express.
        LaunchError: the group supervisor could not be started.
    """
    problem = unavailable()
    if problem is not None:
        raise problem
    if policy.relay:
        why = "the relay needs one, since sockets would reach the machine's network"
        raise SandboxUnavailableError("network namespace", why, "use namespaces, or ctx.http in place of a proxy")
    checked = check_policy(policy, stack)
    identity = user_for(policy.identity)
    view = make_path_view(checked.runtime, (*policy.read, *policy.write), identity)
    try:
        return _spawn(checked, program, view, identity, stack)
    except BaseException:
        discard(view.base, view.scratch, view.links)
        raise


def _spawn(
    checked: CheckedPolicy, program: Program, view: PathView, identity: tuple[int, int] | None, stack: ExitStack
) -> Launching:
    policy = checked.policy
    run, listed = runtime_rules(checked.runtime)
    ruleset = landlock.ruleset(
        landlock.supported_abi(),
        run=(*run, *checked.run_written),
        listing=listed,
        read=(view.links, *_OWN_PROCESS, *filter(os.path.exists, _MACHINE), *(grant.path for grant in checked.read)),
        write=(view.scratch, *(grant.path for grant in checked.write)),
        devices=DEVICES,
    )
    pinned = {grant.path: grant.fd for grant in (*checked.read, *checked.write)}
    needed = list(_needed(checked, view))
    limits = policy.limits if identity is not None else _beside_own_processes(policy.limits)
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    stack.callback(os.close, status_read)
    stack.callback(os.close, status_write)
    config: dict[str, object] = {
        "status_fd": status_write,
        "launcher": os.getpid(),
        "identity": identity,
        "rlimits": rlimits(limits),
        "landlock": {
            "attributes": ruleset.attributes,
            # A grant is the inode that was checked, whatever lies at its path by now.
            "rules": [(pinned.get(path, path), access) for path, access in ruleset.rules],
            "detail": ruleset.detail,
        },
        "filter": _filter(),
        "needed": needed,
        "process_files": [*_OWN_PROCESS, *_MACHINE],
        "environment": view.translate_environment(policy.environment),
        "working_directory": view.translate_path(policy.working_directory),
        "base": view.base,
        "scratch": view.scratch,
        "view": view.links,
        **program_config(view.translate_program(program)),
    }
    stage_fd = stage_file("group-supervisor", config)
    stack.callback(os.close, stage_fd)
    popen = spawn_stage(stage_command(stage_fd), [status_write, stage_fd, *pinned.values()], step=STEP)
    receipt = Receipt(policy.level, "landlock", policy.digest(), tuple(_layers(policy, view)))
    os.set_blocking(status_read, False)
    weaker = _WEAKER_AS_THE_LAUNCHER if identity is None else frozenset[str]()
    return Launching(popen, os.dup(status_read), GroupStart(popen, receipt, view, weaker=weaker))


def _needed(checked: CheckedPolicy, view: PathView) -> Iterator[tuple[str, int]]:
    """What the program's user must have rights to by the files' own permissions: no mount can give it any here."""
    yield stage_interpreter(), os.R_OK | os.X_OK
    for mount in checked.runtime:
        if mount.source:
            yield mount.source, os.R_OK | (os.X_OK if Path(mount.source).is_dir() else 0)
    for grant in checked.read:
        yield grant.path, os.R_OK | (os.X_OK if grant.is_folder else 0)
    for grant in checked.write:
        yield grant.path, os.R_OK | os.W_OK | os.X_OK
    yield view.scratch, os.R_OK | os.W_OK | os.X_OK


def _beside_own_processes(limits: Limits) -> Limits:
    """For a program that is the launcher's own user: RLIMIT_NPROC counts all processes of a user.

    Those that run already are added, so that the program can be started at all.
    """
    return replace(limits, processes=limits.processes + _tasks_of(os.getuid()))


def _tasks_of(user: int) -> int:
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    count += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208 - names alone
            except OSError:
                continue
    return count


@functools.cache
def _filter() -> bytes:
    rules = (*rules_without_namespaces(), *sealing_list(), *deny_list())
    return encode(filter_program(rules, ARCHITECTURES[platform.machine()]))


def _layers(policy: Policy, view: PathView) -> Iterator[Layer]:
    """What stands in for the namespaces, each of which is weaker."""
    yield Layer(
        "file system",
        "Landlock alone: what isn't granted can't be opened or changed; that it exists, its size and times can be seen "
        "where its folder's rights allow",
        weaker=True,
    )
    yield Layer(
        "processes",
        "a process group that can't be left: others can't be signalled, traced or read, but seen to exist",
        weaker=True,
    )
    yield Layer("network", "no socket can be made, by the filter; no namespace", weaker=True)
    yield Layer("ipc", "System V ipc and message queues denied by the filter; no namespace", weaker=True)
    yield Layer(
        "scratch",
        f"unbounded: {view.scratch}, limited by its file system and {policy.limits.file_size_bytes} bytes a file",
        weaker=True,
    )
    yield Layer("environment", f"{len(policy.environment)} variables and TMPDIR, none inherited")
