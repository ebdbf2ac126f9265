"""The server context: what the servicers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fumehood_server.callers import CallerRules, TokenStore
from fumehood_server.calls import Executor
from fumehood_server.calls.resolution import Resolver
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.effective import ConfigComparison
from fumehood_server.hooks import HookChain
from fumehood_server.journal.reads import JournalReads
from fumehood_server.model.journal import Journal
from fumehood_server.model.worker import WorkerPools
from fumehood_server.orchestration.orchestrator import Orchestrator
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.config_change import ConfigReloaded
from fumehood_server.policy import ApprovalDesk
from fumehood_server.rpc.admission import Admission
from fumehood_server.rpc.drain import Drain
from fumehood_server.rpc.pacing import WRITES_PER_ITERATION, Pacer
from fumehood_server.rpc.reading import RequestReader
from fumehood_server.rpc.refusals import RefusalRecords
from fumehood_server.rpc.result_messages import ResultWriter
from fumehood_server.rpc.stream_slots import StreamSlots
from fumehood_server.rpc.tool_messages import ToolWriter
from fumehood_server.rpc.unread import UnreadAnswers
from fumehood_server.telemetry import SidecarMetrics
from fumehood_server.workers.output.logs import LogSink

MAX_SESSIONS = 128
"""Each may hold a message that is half here, of 2 MiB."""

MAX_BATCHES = 128
"""Each holds the arguments of calls that have not begun, of 2 MiB together at most, and 4 MiB of answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The sidecar behind the services."""

    catalog: Catalog
    executor: Executor
    journal: Journal
    journal_reads: JournalReads | None
    """None: nothing is recorded."""
    resolver: Resolver
    pools: WorkerPools
    logs: LogSink
    admission: Admission
    reload_config: Callable[[], Awaitable[ConfigReloaded]]
    """Takes up the configuration as it is now, or raises RefusedError."""
    compare_config: Callable[[], Awaitable[ConfigComparison]]
    """What that would change; raises it likewise."""
    config: Callable[[], SidecarConfig]
    """The configuration in force."""
    refusals: RefusalRecords
    callers: CallerRules
    tokens: TokenStore
    unread: UnreadAnswers
    reader: RequestReader
    hooks: HookChain
    orchestrator: Orchestrator
    approvals: ApprovalDesk | None = None
    """None: none is kept."""
    metrics: SidecarMetrics | None = None
    """None: nobody asked for them."""
    sessions: StreamSlots = field(default_factory=lambda: StreamSlots("sessions", total=MAX_SESSIONS, connection=16))
    batches: StreamSlots = field(default_factory=lambda: StreamSlots("batches", total=MAX_BATCHES, connection=16))
    pacer: Pacer = field(default_factory=lambda: Pacer(WRITES_PER_ITERATION))
    drain: Drain = field(default_factory=Drain)
    results: ResultWriter = field(default_factory=ResultWriter)
    tools: ToolWriter = field(default_factory=ToolWriter)
