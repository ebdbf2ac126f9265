"""Version of a server's Node: an older one's own fetch doesn't find the relay, by which granted hosts are reached.

docs/egress.md, "The relay".
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
from pathlib import Path, PurePath

from fumehood_sandbox import Executable, Level, Limits, Mount, Policy, SandboxError, launch, system_runtime

from fumehood_server.config.config import SandboxConfig
from fumehood_server.plugins.launch.executables import find_executable
from fumehood_server.plugins.launch.program import SEARCH_PATH

_NODES = {"node", "nodejs"}
_VERSION = re.compile(r"v(\d{1,4})\.(\d{1,4})\.")
_TIME_LIMIT_S = 10.0
"""For a program that prints one line."""
_MAX_BYTES = 256
"""Of that line."""
_LIMITS = Limits(memory_bytes=8 * 1024**3)
"""Without a cgroup it counts address space, of which Node reserves much."""


def old_node(program: str, folder: Path, sandbox: SandboxConfig) -> str:
    """The version of the Node that `program` is, if its fetch needs more to reach a granted host. Empty: it is none.

    `program` is a name of the PATH, or a path as a plugin in `folder` has it. Whoever wrote a configuration chose the
    path: what lies there is asked in a sandbox, as its server is run in one. Blocks; call it from the main thread.
    """
    if PurePath(program).name not in _NODES:
        return ""
    said = _said_in_sandbox(program, folder.resolve(), sandbox) if "/" in program else _said(program)
    found = _VERSION.match(said)
    return "" if found is None or _looks_at_proxies(int(found[1]), int(found[2])) else said.strip()[:32]


def _said(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout


def _said_in_sandbox(program: str, folder: Path, sandbox: SandboxConfig) -> str:
    found = find_executable(program, folder, search_path=SEARCH_PATH)
    if found is None:
        return ""
    own = (Mount(found.path, found.path),) if Path(found.path).is_relative_to(folder) else ()
    policy = Policy(
        level=Level.NONE,
        runtime=(*system_runtime(), *found.mounts, *own),
        limits=_LIMITS,
        minimum=sandbox.minimum,
        cgroups=sandbox.cgroups,
    )
    try:
        with launch(policy, Executable((found.path, "--version")), timeout_s=_TIME_LIMIT_S) as process:
            # One write, since it is short, and one read.
            said = select.select([process.stdout], [], [], _TIME_LIMIT_S)[0] and os.read(process.stdout, _MAX_BYTES)
    except (SandboxError, OSError):  # no more than a note depends on it
        return ""
    return said.decode(errors="replace") if said else ""


def _looks_at_proxies(major: int, minor: int) -> bool:
    """Whether NODE_USE_ENV_PROXY has an effect: from 22.21 and 24.0 on."""
    return major >= 24 or (major == 22 and minor >= 21)  # noqa: PLR2004 - versions
