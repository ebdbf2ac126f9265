"""Stage files: a stage's marshalled code and configuration in a memfd, which `python -I -S` reads and runs."""

from __future__ import annotations

import functools
import marshal
import os
import platform
import resource
from collections.abc import Sequence
from pathlib import Path

from fumehood_sandbox.cgroup import Control
from fumehood_sandbox.interpreter import stage_interpreter
from fumehood_sandbox.outside.bubblewrap_arguments import FORK_SCRATCH, SCRATCH
from fumehood_sandbox.outside.grants import CheckedPolicy
from fumehood_sandbox.outside.identity import Identity
from fumehood_sandbox.outside.idmap import IdmappedMount
from fumehood_sandbox.outside.landlock import Ruleset, scopes_only, supported_abi
from fumehood_sandbox.outside.rlimits import rlimits
from fumehood_sandbox.program import Executable, Program, PythonModule
from fumehood_sandbox.seccomp import (
    ARCHITECTURES,
    FORK_FLAGS,
    child_list,
    encode,
    filter_program,
    sealing_list,
)

_BOOTSTRAP = """
import marshal,sys
with open({fd},'rb') as f:c,k=marshal.loads(f.read())
s=marshal.loads(c)
for n,c in s:
 m=sys.modules[n]=type(sys)(n)
 exec(c,m.__dict__)
del f,s,n,c
m.main(k)
"""
_KERNEL = ("kernel.constants", "kernel.libc")
_LAYERS = (*_KERNEL, "inside.report", "inside.layers", "inside.speculation", "inside.program")
_INNER = (*_LAYERS, "inside.relay", "inside.scratch", "inside.inner")
_PARTS = {
    "inner": _INNER,
    "zygote": (*_INNER, "fork.handshake", "fork.zygote"),
    "idmapped-mounts": (*_KERNEL, "inside.report", "inside.idmapped_mounts"),
    "fork-supervisor": (*_KERNEL, "fork.handshake", "fork.inspection", "fork.scratch_mounts", "fork.supervisor"),
    "group-supervisor": (*_LAYERS, "landlock_only.removal", "landlock_only.group_supervisor"),
}
"""The modules of each stage, what is imported first. The last one's `main` is called."""


def stage_command(fd: int) -> list[str]:
    """What runs a stage from its file.

    The code is marshalled, since compiling it would cost each start 4 ms. Both sides are the same interpreter, so the
    format is the same.
    """
    return [stage_interpreter(), *("-I", "-S", "-B", "-X", "utf8", "-c"), _BOOTSTRAP.format(fd=fd)]


def inner_file(
    checked: CheckedPolicy,
    program: Program,
    identity: Identity,
    landlock: Ruleset,
    *,
    status_fd: int,
    stdout_fd: int,
    relay_fd: int | None,
    bounded: frozenset[Control],
    control_fd: int | None = None,
) -> int:
    """Write the inner stage's file and return its descriptor, which the caller closes.

    `bounded` is what a cgroup does for the process, so that no limit of its own needs to. `stdout_fd` becomes the
    program's stdout; `relay_fd` is where the relay's socket is handed out, `control_fd` where a zygote gets its
    requests.
    """
    policy = checked.policy
    config = {
        "status_fd": status_fd,
        "stdout_fd": stdout_fd,
        "rlimits": rlimits(policy.limits, bounded, forks=program.forks if isinstance(program, PythonModule) else 0),
        "zygote": None if control_fd is None else _zygote(checked, control_fd),
        "kept_fds": () if control_fd is None else (control_fd,),
        "relay_fd": relay_fd,
        "scratch": {
            "folders": SCRATCH if control_fd is None else FORK_SCRATCH,
            "files": policy.limits.scratch_files,
            "bytes": policy.limits.scratch_bytes,
        },
        "limits_filter": _limits_filter(relay=relay_fd is not None),
        "identity": (identity.user, identity.group) if identity.user_namespace_fd is not None else None,
        "landlock": {"attributes": landlock.attributes, "rules": list(landlock.rules), "detail": landlock.detail},
        "environment": dict(policy.environment),
        "working_directory": policy.working_directory,
        **program_config(program),
    }
    return stage_file("inner" if control_fd is None else "zygote", config)


def program_config(program: Program) -> dict[str, object]:
    """What a stage must know of the program that it becomes."""
    executable = isinstance(program, Executable)
    return {
        "executable": program.argv if executable else (),
        "module": "" if isinstance(program, Executable) else program.module,
        "argv": program.argv,
        "path": () if isinstance(program, Executable) else program.path,
    }


def stage_file(stage: str, config: dict[str, object]) -> int:
    """Write a stage's file and return its descriptor, which the caller closes."""
    return memory_file(f"fumehood-{stage}", marshal.dumps((_code(stage), config)))


def idmapped_mounts_file(mounts: Sequence[IdmappedMount], command: Sequence[str], status_fd: int) -> int:
    """Write the file of the stage of idmapped mounts and return its descriptor, which the caller closes.

    `command` is bubblewrap's.
    """
    config = {
        "status_fd": status_fd,
        "grants": [(each.path, each.fd, each.user_namespace_fd) for each in mounts],
        "command": list(command),
    }
    return stage_file("idmapped-mounts", config)


def memory_file(name: str, content: bytes) -> int:
    """A memfd with this content, at its start. For what bubblewrap and the stages read from descriptors."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


@functools.cache
def _limits_filter(*, relay: bool) -> bytes:
    """The second filter, which keeps limits as they were set. The first is loaded before, so it can't forbid that."""
    return encode(filter_program(sealing_list(relay=relay), ARCHITECTURES[platform.machine()]))


def _zygote(checked: CheckedPolicy, control_fd: int) -> dict[str, object]:
    """What a zygote needs to make its children. They have its other limits already, and their own clock."""
    return {
        "control_fd": control_fd,
        "clone_flags": FORK_FLAGS,
        "working_directory": checked.policy.working_directory,
        "child_rlimits": [(int(resource.RLIMIT_NPROC), checked.policy.limits.processes)],
        "child_landlock": scopes_only(supported_abi()),
        "child_filter": encode(filter_program(child_list(), ARCHITECTURES[platform.machine()])),
    }


@functools.cache
def _code(stage: str) -> bytes:
    """A stage's modules by name, what it imports first, marshalled. The package itself is an empty module there."""
    folder = Path(__file__).resolve().parents[1]
    sources = [("fumehood_sandbox", "")]
    sources += [
        (f"fumehood_sandbox.{name}", (folder / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
        for name in _PARTS[stage]
    ]
    modules = tuple(
        (name, compile(source, f"<{name}>", "exec", dont_inherit=True, optimize=2)) for name, source in sources
    )
    return marshal.dumps(modules)
