"""The server context: what the servicers share."""

from __future__ import annotations

from dataclasses import dataclass, field

from fumehood_server.calls import Executor
from fumehood_server.model.worker import WorkerPools
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.rpc.admission import Admission
from fumehood_server.rpc.drain import Drain
from fumehood_server.rpc.outcomes import ResultWriter
from fumehood_server.rpc.tools import ToolWriter
from fumehood_server.workers.output.logs import LogSink


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The sidecar behind the services."""

    catalog: Catalog
    executor: Executor
    pools: WorkerPools
    logs: LogSink
    admission: Admission
    drain: Drain = field(default_factory=Drain)
    results: ResultWriter = field(default_factory=ResultWriter)
    tools: ToolWriter = field(default_factory=ToolWriter)
