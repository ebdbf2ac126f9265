"""Doctor's checks of what the configuration grants: secrets, and paths as the plugin's own user finds them."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level, Mount, Policy, PythonModule, SandboxError, SandboxUnavailableError, launch

from fumehood_server.config.config import PluginConfig, SandboxConfig
from fumehood_server.secrets import SecretSource, SecretUnavailableError

_INSIDE = Path(__file__).with_name("inside")
_TARGET = "/run/fumehood/doctor"
_TIMEOUT_S = 20.0
"""A start and some opened files take 50 ms; a dead network mount takes for ever."""

Problem = tuple[str, str]
"""What is wrong, and what to do."""


def secret_problems(secrets: Mapping[str, SecretSource]) -> dict[str, Problem]:
    """Those secrets that could not be read now, by name. Values are read and forgotten."""
    found = {}
    for name, source in secrets.items():
        try:
            source.read_value()
        except SecretUnavailableError as error:
            found[name] = (error.problem, error.remedy)
    return found


def grant_problems(plugin: PluginConfig, name: str, sandbox: SandboxConfig) -> dict[str, Problem]:
    """Those granted paths that the plugin can't use, by path. A sandbox is started for it; nothing is written."""
    paths = (*plugin.grants.read, *plugin.grants.write)
    found = {path: ("it is not there", "create it, or correct the grant") for path in paths if not Path(path).exists()}
    read = tuple(path for path in plugin.grants.read if path not in found)
    write = tuple(path for path in plugin.grants.write if path not in found)
    if not read and not write:
        return found
    policy = Policy(
        level=Level.WRITE if write else Level.READ,
        runtime=(Mount(str(_INSIDE), _TARGET),),
        read=read,
        write=write,
        identity=name,
        minimum=sandbox.minimum,
        cgroups=sandbox.cgroups,
    )
    try:
        answer = _answer_of(policy, PythonModule("read_grants", (*read, "--", *write), (_TARGET,)))
    except SandboxUnavailableError as error:
        return {**found, ", ".join((*read, *write)): (str(error), error.remedy)}
    except (SandboxError, ValueError) as error:
        return {**found, ", ".join((*read, *write)): (str(error), "correct the grant, or the owner of what is granted")}
    user = answer["user"]
    remedy = f"let user {user}, which the plugin runs as, read it: chmod -R o+rX, setfacl, or another owner"
    return {**found, **{path: (f"user {user}: {problem}", remedy) for path, problem in answer["problems"].items()}}


def _answer_of(policy: Policy, program: PythonModule) -> dict[str, Any]:
    """What the program printed.

    Raises:
        SandboxError: it can't be started.
        ValueError: it printed nothing of use, or was not done in time.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    with launch(policy, program, timeout_s=_TIMEOUT_S) as process:
        data = bytearray()
        while select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
            piece = os.read(process.stdout, 65536)
            if not piece:
                break
            data += piece
    answer: dict[str, Any] = json.loads(data)
    return answer
