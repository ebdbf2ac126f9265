"""Worker pools: sandboxed processes that run calls, started on demand and ended by rungs."""

from fumehood_server.worker.describe import ReadyInfo, describe
from fumehood_server.worker.logs import LogLine, LogSink, LogSubscription, PluginLog
from fumehood_server.worker.pools import Pools
from fumehood_server.worker.program import BuiltProgram, build
from fumehood_server.worker.settings import WorkerSettings

__all__ = [
    "BuiltProgram",
    "LogLine",
    "LogSink",
    "LogSubscription",
    "PluginLog",
    "Pools",
    "ReadyInfo",
    "WorkerSettings",
    "build",
    "describe",
]
