"""Schema of fumehood.toml: tables, keys, types and bounds, as pydantic models. `config.py` converts them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from fumehood_sandbox import Backend, Level
from pydantic import Field

from fumehood_server.config.engine_tables import MAX_ENGINES, EngineTable, OrchestrationTable
from fumehood_server.config.hook_tables import MAX_HOOKS, HookTable, MiddlewareTable
from fumehood_server.config.listen import MAX_ADDRESSES
from fumehood_server.config.policy_tables import PolicyTable
from fumehood_server.config.tables import Table, check_with, one_of, refused
from fumehood_server.model.batches import DEFAULT_MAX_CALLS, DEFAULT_MAX_CONCURRENT, MOST_CALLS
from fumehood_server.model.nearest import nearest
from fumehood_server.model.retries import DEFAULT_MAX_ATTEMPTS, MOST_ATTEMPTS
from fumehood_server.model.tool import (
    MAX_CPUS,
    MAX_TIMEOUT_S,
    MIN_SCRATCH_BYTES,
    MIN_SCRATCH_FILES,
    Isolation,
    Payloads,
    Permission,
)

_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3

MAX_PAYLOAD_BYTES = 3 * _MIB
"""Most bytes of arguments or of a result that an operator may allow: with their envelope they must fit a frame
of 4 MiB, and the message of 4 MiB that gRPC clients accept by default."""

MAX_HOSTS = 256
"""Entries of a list of hosts. Each request is matched against all of them."""

MAX_SECRETS = 64
"""As many as a tool can require capabilities. All output of a plugin is searched for each that it was handed."""


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class SocketMode(StrEnum):
    """Who may connect to a unix socket (unix(7): connecting takes write permission)."""

    OWNER = "0600"
    GROUP = "0660"
    EVERYBODY = "0666"


class TlsTable(Table):
    """`[server.tls]`."""

    certificate: str = Field(min_length=1)
    key: str = Field(min_length=1)
    client_ca: str | None = Field(default=None, min_length=1)


class ServerTable(Table):
    """`[server]`."""

    listen: list[str] = Field(default=["unix:.fumehood/fumehood.sock"], min_length=1, max_length=MAX_ADDRESSES)
    socket_mode: Annotated[SocketMode, one_of(SocketMode, "socket mode")] | None = None
    socket_group: str | None = Field(default=None, min_length=1)
    state_dir: str = Field(default=".fumehood", min_length=1)
    idle_stop_s: float = Field(default=300.0, gt=0, le=86_400)
    start_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    max_concurrent_calls: int = Field(default=256, ge=1, le=10_000)
    max_arguments_bytes: int = Field(default=_MIB, ge=_KIB, le=MAX_PAYLOAD_BYTES)
    drain_s: float = Field(default=20.0, ge=0, le=600)
    keepalive_s: int = Field(default=60, ge=1, le=3600)
    max_connections: int = Field(default=1024, ge=1, le=65_536)
    connection_idle_s: int = Field(default=300, ge=1, le=86_400)
    log_level: Annotated[LogLevel, one_of(LogLevel, "log level")] = LogLevel.INFO
    reflection: bool = True
    allow_anonymous: bool = False
    token_file: str | None = Field(default=None, min_length=1)
    tls: TlsTable | None = None


class JournalStore(StrEnum):
    """Where calls are recorded."""

    SQLITE = "sqlite"
    """A file in the state folder."""
    POSTGRESQL = "postgresql"
    """A database, which is named by its URL."""
    OFF = "off"
    """Nowhere: each receipt says so."""


def _journal_store(value: object) -> object:
    if isinstance(value, str) and "://" in value:
        return value
    words = {each.value for each in JournalStore} - {JournalStore.POSTGRESQL}
    if value in words:
        return value
    hint = 'write "postgresql://user@host/database"' if value == JournalStore.POSTGRESQL else nearest(str(value), words)
    raise refused(f'unknown journal "{value}"' if isinstance(value, str) else "the journal must be a string", hint)


class SecretTable(Table):
    """`[secrets.NAME]`, `[journal.password]`: exactly one of `file` and `env`."""

    file: str | None = Field(default=None, min_length=1)
    env: str | None = Field(default=None, min_length=1, max_length=256)


class CheckpointsTable(Table):
    """`[journal.checkpoints]`."""

    file: str | None = Field(default=None, min_length=1)
    command: list[str] = Field(default=[], max_length=64)
    witness: str | None = Field(default=None, pattern=r"^https?://", max_length=2048)
    witness_key: str | None = None
    every_s: float = Field(default=60.0, ge=1, le=86_400)


class JournalTable(Table):
    """`[journal]`."""

    store: Annotated[str, check_with(_journal_store)] = Field(default=JournalStore.SQLITE.value, max_length=4096)
    password: SecretTable | None = None
    required: bool = True
    call_id_window_s: int = Field(default=86_400, ge=0, le=31_536_000)
    checkpoints: CheckpointsTable = Field(default_factory=CheckpointsTable)
    payloads: Annotated[Payloads, one_of(Payloads, "policy of payloads")] = Payloads.FULL
    keep_payloads_d: float = Field(default=0.0, ge=0, le=36_500)
    keep_events_d: float = Field(default=0.0, ge=0, le=36_500)


class DefaultLimitsTable(Table):
    """`[limits.default]`: limits of a tool that declares none. None: the sidecar's own default."""

    memory_bytes: int | None = Field(default=None, ge=16 * _MIB)
    cpu_s: int | None = Field(default=None, ge=1)
    processes: int | None = Field(default=None, ge=1)
    open_files: int | None = Field(default=None, ge=16)
    file_size_bytes: int | None = Field(default=None, ge=1)
    scratch_bytes: int | None = Field(default=None, ge=MIN_SCRATCH_BYTES)
    scratch_files: int | None = Field(default=None, ge=MIN_SCRATCH_FILES)
    cpus: int | None = Field(default=None, ge=1)
    output_bytes: int | None = Field(default=None, ge=_KIB, le=MAX_PAYLOAD_BYTES)
    log_bytes_per_second: int | None = Field(default=None, ge=_KIB)


class CapLimitsTable(Table):
    """`[limits.cap]`: the most that any tool gets, whatever it declares."""

    memory_bytes: int = Field(default=32 * _GIB, ge=16 * _MIB)
    cpu_s: int = Field(default=3600, ge=1)
    processes: int = Field(default=512, ge=1)
    open_files: int = Field(default=4096, ge=16)
    file_size_bytes: int = Field(default=_GIB, ge=1)
    scratch_bytes: int = Field(default=_GIB, ge=MIN_SCRATCH_BYTES)
    scratch_files: int = Field(default=1_000_000, ge=MIN_SCRATCH_FILES)
    cpus: int = Field(default=64, ge=1, le=MAX_CPUS)
    output_bytes: int = Field(default=MAX_PAYLOAD_BYTES, ge=_KIB, le=MAX_PAYLOAD_BYTES)
    log_bytes_per_second: int = Field(default=64 * _MIB, ge=_KIB)
    timeout_s: float = Field(default=MAX_TIMEOUT_S, gt=0, le=MAX_TIMEOUT_S)


class LimitsTable(Table):
    """`[limits]`."""

    default: DefaultLimitsTable = DefaultLimitsTable()
    cap: CapLimitsTable = CapLimitsTable()


class CgroupUse(StrEnum):
    """Whether workers are put into control groups."""

    AUTO = "auto"
    """Where the sidecar has a writable cgroup; elsewhere rlimits and a watchdog, which are weaker."""
    OFF = "off"
    """Never: rlimits and a watchdog everywhere."""


class SandboxTable(Table):
    """`[sandbox]`."""

    minimum: Annotated[Backend, one_of(Backend, "minimum")] = Backend.NAMESPACES
    cgroups: Annotated[CgroupUse, one_of(CgroupUse, "use of cgroups")] = CgroupUse.AUTO


_NAME_START = re.compile(r"[a-z][a-z0-9_]{0,63}")


def _tool_name(value: object) -> object:
    """Checks a tool's name, or the beginning of one."""
    if not (isinstance(value, str) and _NAME_START.fullmatch(value)):
        raise refused(f"\"{value}\" can't stand in a tool's name", "1 to 64 of a-z, 0-9 and _, starting with a letter")
    return value


class ToolGrantTable(Table):
    """`[plugin.tools.NAME]`."""

    permission: Annotated[Permission | None, one_of(Permission, "permission")] = None
    timeout_s: float | None = Field(default=None, gt=0, le=MAX_TIMEOUT_S)
    idle_timeout_s: float | None = Field(default=None, gt=0, le=MAX_TIMEOUT_S)
    isolation: Annotated[Isolation | None, one_of(Isolation, "isolation")] = None
    secrets: list[str] = Field(default=[], max_length=MAX_SECRETS)
    hosts: list[str] | None = Field(default=None, max_length=MAX_HOSTS)
    alias: Annotated[str | None, check_with(_tool_name)] = None
    payloads: Annotated[Payloads | None, one_of(Payloads, "policy of payloads")] = None
    cache_s: float = Field(default=0.0, ge=0, le=86_400)
    cache_shared: bool = False
    side_effects: Annotated[Level | None, one_of(Level, "side-effect level")] = None
    idempotent: bool | None = None


class EgressTable(Table):
    """`[egress]`: caps of every request, which a request can lower and nothing can raise."""

    timeout_s: float = Field(default=30.0, gt=0, le=MAX_TIMEOUT_S)
    connect_timeout_s: float = Field(default=10.0, gt=0, le=300)
    max_request_bytes: int = Field(default=4 * _MIB, ge=0, le=_GIB)
    max_response_bytes: int = Field(default=16 * _MIB, ge=_KIB, le=_GIB)
    max_redirects: int = Field(default=10, ge=0, le=50)
    tunnel_timeout_s: float = Field(default=300.0, gt=0, le=MAX_TIMEOUT_S)
    max_tunnel_bytes: int = Field(default=64 * _MIB, ge=_KIB, le=1024 * _GIB)
    allow_private: list[str] = Field(default=[], max_length=MAX_HOSTS)


class PluginTable(Table):
    """`[[plugin]]`."""

    path: str = Field(min_length=1)
    prefix: Annotated[str, check_with(_tool_name)] = ""
    max_side_effects: Annotated[Level, one_of(Level, "side-effect level")] = Level.READ
    read: list[str] = Field(default=[], max_length=64)
    write: list[str] = Field(default=[], max_length=64)
    hosts: list[str] = Field(default=[], max_length=MAX_HOSTS)
    deny_hosts: list[str] = Field(default=[], max_length=MAX_HOSTS)
    build_hosts: list[str] = Field(default=[], max_length=MAX_HOSTS)
    allow_private: list[str] = Field(default=[], max_length=MAX_HOSTS)
    max_workers: int = Field(default=2, ge=1, le=64)
    secrets: list[str] = Field(default=[], max_length=MAX_SECRETS)
    engine: str | None = Field(default=None, min_length=1)
    one_process: bool = False
    list_with_grants: bool = False
    tools: dict[str, ToolGrantTable] = Field(default={})


class WebhookTable(Table):
    """`[approvals.webhook]`."""

    url: str | None = Field(default=None, min_length=1, max_length=2048)
    secret: str | None = Field(default=None, min_length=1)
    allow_private: list[str] = Field(default=[], max_length=MAX_HOSTS)
    listen: str | None = Field(default=None, min_length=1)
    reply_secret: str | None = Field(default=None, min_length=1)
    caller: str | None = Field(default=None, min_length=1)


class ApprovalsTable(Table):
    """`[approvals]`."""

    decide_within_s: float = Field(default=3_600.0, gt=0, le=31_536_000)
    use_within_s: float = Field(default=600.0, gt=0, le=31_536_000)
    max_open: int = Field(default=4_096, ge=1, le=100_000)
    standing_max_s: float = Field(default=28_800.0, gt=0, le=31_536_000)
    webhook: WebhookTable | None = None


_CALLER = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_TOOL_PATTERN = re.compile(r"[a-z0-9_*/-]{1,128}")
MAX_CALLERS = 1000
MAX_PATTERNS = 256


def _caller_name(value: object) -> object:
    if not (isinstance(value, str) and _CALLER.fullmatch(value)):
        hint = "1 to 64 of a-z, 0-9, _, . and -, starting with a letter"
        raise refused(f'"{value}" can\'t be the name of a caller', hint)
    return value


def _tool_pattern(value: object) -> object:
    if not (isinstance(value, str) and _TOOL_PATTERN.fullmatch(value)):
        raise refused(f'"{value}" matches no tool\'s name', 'a-z, 0-9, _, - and /, and * for any of them: "files_*"')
    return value


ToolPattern = Annotated[str, check_with(_tool_pattern)]


class CallerTable(Table):
    """`[[caller]]`."""

    name: Annotated[str, check_with(_caller_name)]
    tools: list[ToolPattern] = Field(default=[], max_length=MAX_PATTERNS)
    list_only: list[ToolPattern] = Field(default=[], max_length=MAX_PATTERNS)
    approve: list[ToolPattern] = Field(default=[], max_length=MAX_PATTERNS)
    operator: bool = False
    certificate: str | None = Field(default=None, min_length=1, max_length=256)
    listen: str | None = Field(default=None, min_length=1)


class ClientTable(Table):
    """`[client]`: what the commands of this folder show a sidecar. The sidecar reads none of it."""

    token_file: str | None = Field(default=None, min_length=1)
    tls_ca: str | None = Field(default=None, min_length=1)
    certificate: str | None = Field(default=None, min_length=1)
    key: str | None = Field(default=None, min_length=1)


class McpTable(Table):
    """`[mcp]`."""

    listen: str = Field(min_length=1)
    tls: bool = False
    allow_anonymous: bool = False
    allowed_hosts: list[str] = Field(default=[], max_length=MAX_HOSTS)
    allowed_origins: list[str] = Field(default=[], max_length=MAX_HOSTS)
    authorization_servers: list[str] = Field(default=[], max_length=MAX_HOSTS)
    max_sessions: int = Field(default=1024, ge=1, le=65_536)
    session_idle_s: float = Field(default=1800.0, gt=0, le=86_400)
    max_requests: int = Field(default=1024, ge=1, le=65_536)


class TelemetryTable(Table):
    """`[telemetry]`."""

    prometheus: str | None = None
    otlp_endpoint: str | None = Field(default=None, max_length=2048)
    service_name: str = Field(default="fumehood", min_length=1, max_length=255)
    traces_sample_ratio: float = Field(default=1.0, ge=0, le=1)
    metrics_interval_s: float = Field(default=15.0, ge=1, le=3600)
    propagate_to: list[str] = Field(default=[], max_length=MAX_HOSTS)


class RetryTable(Table):
    """`[retry]`."""

    default_attempts: int = Field(default=1, ge=1, le=MOST_ATTEMPTS)
    max_attempts: int = Field(default=DEFAULT_MAX_ATTEMPTS, ge=1, le=MOST_ATTEMPTS)


class BatchTable(Table):
    """`[batch]`."""

    max_concurrent: int = Field(default=DEFAULT_MAX_CONCURRENT, ge=1, le=MOST_CALLS)
    max_calls: int = Field(default=DEFAULT_MAX_CALLS, ge=1, le=MOST_CALLS)


class ConfigFile(Table):
    """The whole file."""

    server: ServerTable = ServerTable()
    limits: LimitsTable = LimitsTable()
    journal: JournalTable = JournalTable()
    sandbox: SandboxTable = SandboxTable()
    retry: RetryTable = RetryTable()
    batch: BatchTable = BatchTable()
    egress: EgressTable = EgressTable()
    telemetry: TelemetryTable = TelemetryTable()
    mcp: McpTable | None = None
    policy: PolicyTable = PolicyTable()
    approvals: ApprovalsTable = ApprovalsTable()
    hook: list[HookTable] = Field(default=[], max_length=MAX_HOOKS)
    middleware: list[MiddlewareTable] = Field(default=[], max_length=MAX_HOOKS)
    secrets: dict[str, SecretTable] = Field(default={}, max_length=MAX_SECRETS)
    engine: list[EngineTable] = Field(default=[], max_length=MAX_ENGINES)
    orchestration: OrchestrationTable = OrchestrationTable()
    plugin: list[PluginTable] = Field(default=[])
    caller: list[CallerTable] = Field(default=[], max_length=MAX_CALLERS)
    client: ClientTable = ClientTable()


__all__ = ["MAX_PAYLOAD_BYTES", "CgroupUse", "ConfigFile", "LimitsTable", "LogLevel", "PluginTable", "ServerTable"]
