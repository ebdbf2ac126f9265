"""What this machine gives a sidecar, looked at once at its start: a state folder, descriptors, a sandbox."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import fumehood_sandbox
from fumehood_sandbox import Backend, SandboxUnavailableError
from structlog.typing import FilteringBoundLogger

from fumehood_server.config.config import SandboxConfig, ServerConfig, SidecarConfig
from fumehood_server.config.listen import SocketAccess
from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable
from fumehood_server.model.tool import Reason
from fumehood_server.rpc import ConnectionSettings, connections_that_fit, make_socket_folder, raise_descriptor_limit


class StateFolderError(FumehoodError):
    """The state folder can't be used. The operator must make it writable, or name another."""

    def __init__(self, folder: Path, problem: str) -> None:
        """Keep the folder."""
        super().__init__(f"can't keep state in {printable(folder)}: {problem}")
        self.folder = folder


def make_state_folder(config: SidecarConfig) -> None:
    """Make the folder where there is none, and try to write there.

    Raises:
        StateFolderError: it can't be made or written to.
    """
    folder = config.server.state_dir
    # Without mounts a plugin's own user must pass through it to its copy. What else lies there has rights of its own.
    traversed = os.geteuid() == 0 and config.sandbox.minimum is Backend.LANDLOCK
    holds_socket = any(each.path is not None and each.path.parent == folder for each in config.server.listen)
    try:
        if not folder.exists():
            make_socket_folder(folder, config.server.socket_access if holds_socket else SocketAccess())
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | (0o011 if traversed else 0))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StateFolderError(folder, error.strerror or str(error)) from error


def connection_settings(server: ServerConfig, log: FilteringBoundLogger) -> ConnectionSettings:
    """What holds for connections, with no more of them than there are descriptors for."""
    descriptors = raise_descriptor_limit()
    fit = connections_that_fit(server.max_connections, len(server.listen), descriptors)
    if fit < server.max_connections:
        log.warning(
            "fewer_connections",
            max_connections=fit,
            configured=server.max_connections,
            descriptors=descriptors,
            remedy="raise the hard limit on open files (ulimit -Hn, LimitNOFILE=), or lower [server] max_connections",
        )
    return ConnectionSettings(
        max_arguments_bytes=server.max_arguments_bytes,
        keepalive_s=server.keepalive_s,
        max_connections=fit,
        idle_s=server.connection_idle_s,
    )


def sandbox_problem(sandbox: SandboxConfig, log: FilteringBoundLogger) -> Reason | None:
    """Why this machine can't sandbox. The sidecar serves all the same, so that callers are told.

    What it can only do more weakly is logged once, since each receipt says no more than that.
    """
    try:
        findings = fumehood_sandbox.check(sandbox.minimum).findings
    except SandboxUnavailableError as exc:
        return Reason("sandbox_unavailable", str(exc), exc.remedy or "run `fumehood doctor`")
    for each in findings:
        if each.status == "weaker" and (each.layer != "cgroup" or sandbox.cgroups):
            message = f"{each.feature}: {each.detail}"
            log.warning("sandbox_weaker", layer=each.layer, message=message, remedy=each.remedy)
    return None
