"""The operator's configuration, checked and with its paths and grants resolved: see `load` for how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fumehood_sandbox import Backend, Limits

from fumehood_server.config.callers import CallerConfig, TlsConfig
from fumehood_server.config.checkpoints import CheckpointPlaces
from fumehood_server.config.config_file import (
    JournalStore,
    LogLevel,
)
from fumehood_server.config.database import Database
from fumehood_server.config.egress import EgressConfig
from fumehood_server.config.engines import EngineConfig, OrchestrationConfig
from fumehood_server.config.grants import Protected
from fumehood_server.config.listen import Listen, SocketAccess
from fumehood_server.config.mcp import McpConfig
from fumehood_server.config.webhook import WebhookConfig
from fumehood_server.model.batches import BatchConfig
from fumehood_server.model.hooks import HookConfig, MiddlewareConfig
from fumehood_server.model.plugin import Grants, ToolGrant
from fumehood_server.model.policy import Rule
from fumehood_server.model.quotas import Quota
from fumehood_server.model.retries import RetryConfig
from fumehood_server.model.tool import DeclaredLimits, Payloads
from fumehood_server.secrets import SecretSource
from fumehood_server.telemetry import TelemetrySettings

CONFIG_NAME = "fumehood.toml"
LOCK_NAME = "fumehood.lock"
TOKEN_FILE = "tokens.json"  # noqa: S105 - its name
"""In the state folder, unless the operator names another."""

DEFAULT_OUTPUT_BYTES = 1024 * 1024
"""Default cap of a result: far above what a model reads, far below a frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`[server]`. Paths are absolute."""

    listen: tuple[Listen, ...]
    socket_access: SocketAccess
    state_dir: Path
    idle_stop_s: float
    """A worker without a call for this long is stopped."""
    start_timeout_s: float
    """From a plugin's start to its `Ready`."""
    max_concurrent_calls: int
    """Calls under way in the whole sidecar; more are refused with RESOURCE_EXHAUSTED."""
    max_arguments_bytes: int
    drain_s: float
    """How long calls under way may go on after SIGTERM."""
    keepalive_s: int
    """A client that is silent for this long is sent an HTTP/2 keepalive ping."""
    max_connections: int
    """Of each address; less where descriptors are short."""
    connection_idle_s: int
    """A connection without a request for this long is closed."""
    log_level: LogLevel
    reflection: bool
    allow_anonymous: bool = False
    """Whether TCP on loopback takes callers without a token or a certificate."""
    token_file: Path
    """Where the hashes of tokens are. It need not exist."""
    tls: TlsConfig | None = None
    """None: TCP is in plain text."""


DEFAULT_LOG_BYTES_PER_SECOND = 1024 * 1024
"""Default cap of a worker's log. A plugin above it loses lines, long before it fills a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarLimits:
    """Limits that the sidecar enforces, and not the kernel."""

    output_bytes: int
    """Of one result."""
    log_bytes_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """`[limits]`: the limits of a tool that declares none, and the caps of all."""

    default: Limits
    default_own: SidecarLimits
    cap: Limits
    cap_own: SidecarLimits
    cap_timeout_s: float

    def merge(self, declared: DeclaredLimits) -> tuple[Limits, SidecarLimits]:
        """The limits in force for a tool: declared, else default, never over the cap."""

        def merged(name: str, default: object, cap: object) -> int:
            wanted: int = _or(getattr(declared, name), getattr(default, name))
            allowed: int = getattr(cap, name)
            return min(wanted, allowed)

        return (
            Limits(**{name: merged(name, self.default, self.cap) for name in SANDBOX_LIMITS}),
            SidecarLimits(**{name: merged(name, self.default_own, self.cap_own) for name in SIDECAR_LIMITS}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """`[journal]`."""

    store: JournalStore = JournalStore.SQLITE
    database: Database | None = None
    """Where it lies in PostgreSQL."""
    required: bool = True
    """Whether calls without effects are refused as well while it can't be written."""
    call_id_window_s: int = 86_400
    """How long a call's id stands for that call."""
    checkpoints: CheckpointPlaces = field(default_factory=CheckpointPlaces)
    keep_payloads_d: float = 0.0
    """Days after which arguments and results are removed. 0: never."""
    keep_events_d: float = 0.0
    """Days after which whole events are removed. 0: never."""
    payloads: Payloads = Payloads.FULL
    """What is kept of the arguments and results of tools for which nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """`[sandbox]`: settings of every sandbox."""

    minimum: Backend = Backend.NAMESPACES
    """The weakest backend that the operator accepts."""
    cgroups: bool = True
    """Whether a cgroup may bound workers where this machine has one for the sidecar."""


SANDBOX_LIMITS = (
    "memory_bytes",
    "cpu_s",
    "processes",
    "open_files",
    "file_size_bytes",
    "scratch_bytes",
    "scratch_files",
    "cpus",
)
SIDECAR_LIMITS = ("output_bytes", "log_bytes_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """One `[[plugin]]`."""

    path: Path
    """Its folder, absolute. It need not exist: the plugin is refused then, and the sidecar serves the others."""
    grants: Grants
    build_hosts: tuple[str, ...] = ()
    """Hosts that its build command may reach, in canonical form."""
    max_workers: int = 2
    secrets: tuple[str, ...] = ()
    """Names of secrets that each of its tools may have, beside its own."""
    one_process: bool = False
    """Kind `mcp`: whether one process serves the tools of every level."""
    list_with_grants: bool = False
    """Kind `mcp` on stdio: whether the server is asked for its tools with what it is granted, and not without."""
    tools: Mapping[str, ToolGrant] = field(default_factory=dict)
    line: int = 0
    """Line of its header in the file; 0 when there is none."""
    prefix: str = ""
    """Stands before the names of its tools; see `ToolGrant.alias`."""
    tool_lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def all_secrets(self) -> frozenset[str]:
        """Names of the secrets that any of its tools may have."""
        return frozenset(self.secrets).union(*(grant.secrets for grant in self.tools.values()))

    def tool_grant(self, name: str) -> ToolGrant:
        """The operator's settings of one of its tools, with the secrets of all of them."""
        grant = self.tools.get(name, ToolGrant())
        return replace(grant, secrets=tuple(sorted({*grant.secrets, *self.secrets}))) if self.secrets else grant


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsConfig:
    """`[approvals]`."""

    decide_within_s: float = 3_600.0
    """How long an approval waits for its decision."""
    use_within_s: float = 600.0
    """How long a call may use it after that."""
    max_open: int = 4_096
    """Approvals that wait, or were given and not used."""
    standing_max_s: float = 28_800.0
    """How long a standing approval may be good at most."""
    webhook: WebhookConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarConfig:
    """The whole configuration."""

    path: Path | None
    """fumehood.toml. None: there is none, and all is default."""
    folder: Path
    """Where relative paths start."""
    lock_path: Path
    server: ServerConfig
    limits: LimitsConfig
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    retry: RetryConfig = field(default_factory=RetryConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    plugins: tuple[PluginConfig, ...] = ()
    callers: tuple[CallerConfig, ...] = ()
    secrets: Mapping[str, SecretSource] = field(default_factory=dict)
    egress: EgressConfig = field(default_factory=EgressConfig)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    rules: tuple[Rule, ...] = ()
    quotas: tuple[Quota, ...] = ()
    approvals: ApprovalsConfig = field(default_factory=ApprovalsConfig)
    mcp: McpConfig | None = None
    hooks: tuple[HookConfig, ...] = ()
    middleware: tuple[MiddlewareConfig, ...] = ()
    engines: tuple[EngineConfig, ...] = ()
    """In the order of the file. Empty: runs are refused."""
    orchestration: OrchestrationConfig = field(default_factory=OrchestrationConfig)
    protected: tuple[Protected, ...] = field(default=(), compare=False, repr=False)
    """What no grant may overlap, beside `protected_code`: no setting, but what follows from the others of the file."""


def _or(declared: int | None, default: int) -> int:
    return default if declared is None else declared
