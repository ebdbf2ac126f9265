"""Tool definitions, and the reasons why a tool is unavailable."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fumehood_sandbox import Level

DEFAULT_TIMEOUT_S = 30.0
"""Of a tool that declares none: enough for a search of a large tree, short enough for an agent that waits."""
MAX_TIMEOUT_S = 3600.0
MIN_SCRATCH_BYTES = 64 * 1024
"""Smallest tmpfs that the sandbox mounts as scratch."""
MIN_SCRATCH_FILES = 16
"""Fewest inodes of it: its root, and the folders to what is mounted there."""
MAX_CPUS = 8192
"""More processors than Linux can have (CONFIG_NR_CPUS)."""


class Payloads(StrEnum):
    """What the journal keeps of a tool's arguments and results."""

    FULL = "full"
    HASH = "hash"
    """Their SHA-256 and their size."""
    OFF = "off"
    """Nothing."""


class Permission(StrEnum):
    """Whether a call may run, needs an approval, or is denied."""

    ALLOW = "allow"
    REQUIRE_APPROVAL = "require_approval"
    DENY = "deny"


DEFAULT_PERMISSION = {
    Level.NONE: Permission.ALLOW,
    Level.READ: Permission.ALLOW,
    Level.WRITE: Permission.REQUIRE_APPROVAL,
    Level.EXTERNAL: Permission.REQUIRE_APPROVAL,
}
"""Of a tool for which the operator says nothing."""


class Isolation(StrEnum):
    """Whether a process serves many calls, or one."""

    PROCESS = "process"
    CALL = "call"


class ExecutionMode(StrEnum):
    """Whether a tool's calls may run concurrently within a batch."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


def safe_to_repeat(level: Level, *, idempotent: bool = False) -> bool:
    """Whether a call that may have run can be made again unseen: it changed nothing, or a second time changes no more.

    `level` is that of the tool, or of the process it ran in.
    """
    return idempotent or level in (Level.NONE, Level.READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLimits:
    """Limits that a tool declares. None takes the default."""

    memory_bytes: int | None = None
    cpu_s: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None
    scratch_bytes: int | None = None
    output_bytes: int | None = None
    log_bytes_per_second: int | None = None
    cpus: int | None = None
    scratch_files: int | None = None


TASK_REQUIRED = "taskRequired: true"
"""Among the claims of a tool of kind `mcp` that its server runs as a task alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """One tool's definition, as its plugin's author declares it, validated."""

    name: str
    title: str = ""
    description: str
    input_schema_json: str
    """JSON Schema 2020-12 as canonical JSON (RFC 8785); its top level is an object."""
    output_schema_json: str = ""
    side_effects: Level
    idempotent: bool = False
    requires: tuple[str, ...] = ()
    """Capabilities, sorted: `binary:NAME`, `read`, `write`, `host:NAME:PORT`, `secret:NAME`."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    idle_timeout_s: float | None = None
    """Longest without an update. None: nothing bounds that."""
    isolation: Isolation = Isolation.PROCESS
    execution_mode: ExecutionMode = ExecutionMode.PARALLEL
    limits: DeclaredLimits = field(default_factory=DeclaredLimits)
    prepares_arguments: bool = False
    """Whether its plugin turns what callers send into what is validated."""
    claims: tuple[str, ...] = ()
    """Kind `mcp`: what its server says of its effects, such as "readOnlyHint: true"."""
    schema_problem: str = field(default="", compare=False)
    """Kind `mcp`: what of its server's schemas isn't taken. Then it is never called: no arguments fit its schema here.
    Not compared: the wording is ours, and it may be another one's tomorrow."""

    @property
    def takes_task(self) -> bool:
        """Whether its server takes no call of it but one that asks for a task of MCP's, which none from here does."""
        return TASK_REQUIRED in self.claims

    @property
    def never_called(self) -> str:
        """Kind `mcp`: why it is listed and never called, whatever it is granted. Empty: it can be."""
        if self.takes_task:
            return "its server runs it as a task alone (taskSupport: required), and no call from here asks for a task"
        return self.schema_problem


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a tool or a plugin is unavailable."""

    code: str
    """Stable: "binary_missing", "level_not_granted", "grant_missing", "definition_changed", "sandbox_unavailable"…"""
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a tool could run now: it could when there is no reason against it."""

    reasons: tuple[Reason, ...] = ()

    @property
    def available(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons


AVAILABLE = Availability()
