"""Plugins, their tools and grants, and the specs of their workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fumehood_server.model.tool import Isolation, Payloads

if TYPE_CHECKING:
    from pathlib import Path

    from fumehood_sandbox import Level, Limits, Policy, Program

    from fumehood_server.model.tool import Permission, Reason, ToolDefinition

PREWARMED_FORKS = 2
"""Prewarmed forked processes: one serves a call while the other is forked, which takes some 3 ms; 2 MiB each."""

Recognise = Callable[[Sequence[bytes]], Awaitable[str]]
"""Compares the definitions of a process's `Ready`, each serialised, with the accepted ones. Returns the difference in
one line, empty where there is none."""


class Kind(StrEnum):
    """How a plugin's process is started and where its definitions come from."""

    PYTHON = "python"
    """The SDK's decorators, read by importing the plugin inside the `none` sandbox."""
    EXECUTABLE = "executable"
    """Any program that speaks the frames; definitions from the manifest."""
    CLI = "cli"
    """An existing binary behind an argument template; definitions from the manifest."""
    MCP = "mcp"
    """An existing MCP server on stdio; definitions from its `tools/list`, read in the `none` sandbox."""

    @property
    def default_isolation(self) -> Isolation:
        """The isolation of a tool whose author and operator say nothing."""
        return Isolation.PROCESS if self in {Kind.EXECUTABLE, Kind.MCP} else Isolation.CALL

    @property
    def describes_itself(self) -> bool:
        """Whether definitions come from the process's `Ready`, and not from the manifest."""
        return self in {Kind.PYTHON, Kind.MCP}


class PluginState(StrEnum):
    """Whether a plugin's tools can be called."""

    SERVING = "serving"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What the operator gives a plugin. Paths are absolute, resolved and sorted."""

    max_side_effects: Level
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Hosts that may be reached, in canonical form."""
    deny_hosts: tuple[str, ...] = ()
    """Hosts that may not, whatever `hosts` says."""
    private: tuple[str, ...] = ()
    """Addresses that are not public and may be reached: `ADDRESS` as such, or `NAME=ADDRESS` by that name alone."""
    engine: str = ""
    """Name of the engine that its tools may ask. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolGrant:
    """The operator's settings of one tool. None leaves the default."""

    permission: Permission | None = None
    timeout_s: float | None = None
    """The operator's cap: the lower of it and the tool's own is in force."""
    idle_timeout_s: float | None = None
    """Likewise. It holds for a tool that declares none, too."""
    isolation: Isolation | None = None
    """What the operator chose in place of the tool's own."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that it may have. It gets those of them that it requires."""
    hosts: tuple[str, ...] | None = None
    """Hosts that it may reach, in place of its plugin's `hosts`. None: the plugin's."""
    alias: str = ""
    """The name that callers know it by. Empty: its own, after its plugin's prefix."""
    payloads: Payloads | None = None
    """What the journal keeps of its arguments and results."""
    cache_s: float = 0.0
    """How long its results are kept for equal calls. 0: they are not."""
    cache_shared: bool = False
    """Whether callers get one another's."""
    side_effects: Level | None = None
    """Kind `mcp`: the level, in place of the one that its server's annotations come to."""
    idempotent: bool | None = None
    """Kind `mcp`: whether calls may be repeated. What its server says of that counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkerSpec:
    """All that is needed to start one worker of a plugin. Specs with equal keys may share a process.

    What differs between two tools in what their process could touch must differ in the key.
    """

    key: str
    """Digest of the other fields, made once, since the pools look workers up by it on each call."""
    plugin: str
    plugin_digest: str
    policy: Policy
    program: Program
    output_bytes: int
    """Cap of one result in bytes."""
    cpu_s: int = 600
    """Processor time of one call. `policy` bounds that of a process over its life, as a backstop."""
    log_bytes_per_second: int = 1024 * 1024
    """What a process may log within a second; see `Limits.log_bytes_per_second` of the protocol."""
    max_workers: int
    """Most processes of this pool at a time."""
    isolation: Isolation = Isolation.PROCESS
    """Whether a process serves many calls, or one."""
    max_concurrent_calls: int = 32
    """Most calls in one process at a time: the manifest's `concurrency`. A worker's `Ready` may ask for fewer."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that its tools are handed when they ask, sorted. Tools with others run elsewhere."""
    hands_secrets: bool = False
    """Whether the process gets the values of `secrets` with its `Hello` (kind `mcp`)."""
    all_levels: bool = False
    """Whether one process serves the tools of every level, at the highest of them, as the operator says.

    It keeps what its calls leave running, such as a browser.
    """
    hosts: tuple[str, ...] = ()
    """Hosts that the sidecar reaches for its tools, in canonical form, sorted."""
    deny_hosts: tuple[str, ...] = ()
    """Hosts that it does not reach for them, whatever `hosts` says."""
    private: tuple[str, ...] = ()
    """Addresses that are not public and that it reaches for them, as in `Grants.private`."""
    engine: str = ""
    """Name of the engine that its tools may ask. Empty: none."""
    recognise: Recognise | None = None
    """Awaited for each process that declares definitions, before it gets a call. None: nothing was accepted yet, or the
    definitions are in the manifest."""

    @property
    def reach(self) -> str:
        """SHA-256 of what a call could touch: grants, limits and environment. Not of where its own files lie."""
        policy = self.policy
        fields = {
            "level": policy.level,
            "read": policy.read,
            "write": policy.write,
            "environment": policy.environment,
            "limits": asdict(policy.limits),
            "minimum": policy.minimum,
            "cgroups": policy.cgroups,
            "relay": policy.relay,
            "secrets": self.secrets,
            "hosts": self.hosts,
            "deny_hosts": self.deny_hosts,
            "private": self.private,
        }
        if self.engine:
            fields["engine"] = self.engine
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTool:
    """One tool with all that a call needs: definition, permission, timeout and worker spec, made at registration."""

    definition: ToolDefinition
    definition_digest: str
    plugin: str
    plugin_version: str
    permission: Permission
    permission_set: bool = True
    """Whether the operator chose it. False: it follows the level."""
    timeout_s: float
    """The lower of the tool's own and the operator's."""
    idle_timeout_s: float | None = None
    """Likewise, of the longest that a call may go on without an update. None: neither has one."""
    spec: WorkerSpec | None
    """None when it can't be run at all, as with a level above the grant; `reasons` say why."""
    reasons: tuple[Reason, ...] = ()
    """Why it couldn't run when the plugin was loaded. What changes on the machine is checked at each listing."""
    alias: str = ""
    """The operator's name for it. Empty: it has its own."""
    payloads: Payloads = Payloads.FULL
    """What the journal keeps of its arguments and results."""
    prepares: WorkerSpec | None = None
    """Where its arguments are prepared, at the level `none` and without a grant. None: they are taken as they are."""
    cache_s: float = 0.0
    """How long its results are kept for equal calls. 0: they are not."""
    cache_shared: bool = False
    """Whether callers get one another's."""
    plugin_secrets: tuple[str, ...] = ()
    """Names of the secrets that any tool of its plugin may have."""

    @property
    def name(self) -> str:
        """What callers know it by. Its plugin knows it by the name in its definition."""
        return self.alias or self.definition.name

    @property
    def isolation(self) -> Isolation:
        """The isolation in force, where it can be run."""
        return self.definition.isolation if self.spec is None else self.spec.isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPlugin:
    """One plugin of the configuration, readable or not."""

    name: str
    version: str
    kind: Kind | None
    path: Path
    digest: str
    state: PluginState
    reasons: tuple[Reason, ...]
    grants: Grants
    tools: tuple[RegisteredTool, ...] = ()
    reads: tuple[RegisteredTool, ...] = ()
    """Kind `mcp`: its reserved tools (`model.mcp_reading`), which are not listed."""
    limits: Limits | None = None

    @property
    def callable_tools(self) -> tuple[RegisteredTool, ...]:
        """Every tool that can be called by name, listed or not."""
        return (*self.tools, *self.reads)
