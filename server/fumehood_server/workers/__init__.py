"""Worker pools: sandboxed processes that run calls, started on demand and ended step by step."""

from fumehood_server.workers.output.logs import LogLine, LogSink, LogSubscription, PluginLog
from fumehood_server.workers.pools.describe import ReadyInfo, describe
from fumehood_server.workers.pools.pools import Pools
from fumehood_server.workers.settings import WorkerSettings

__all__ = [
    "LogLine",
    "LogSink",
    "LogSubscription",
    "PluginLog",
    "Pools",
    "ReadyInfo",
    "WorkerSettings",
    "describe",
]
