"""What a plugin says of itself, asked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.workers.process.start import started_worker
from fumehood_server.workers.settings import WorkerSettings
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood.v1 import tool_pb2

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.output.logs import LogSink


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    """A plugin's `Ready`. Hostile input: nothing of it was checked but its size and that it is protobuf."""

    tools: tuple[tool_pb2.ToolDefinition, ...]
    sdk: str
    max_concurrent_calls: int
    """The plugin's own wish. 0: none."""
    version: str = ""
    """The version that the plugin's code gives itself. Empty: it gives none."""


async def describe(spec: WorkerSpec, *, logs: LogSink, settings: WorkerSettings | None = None) -> ReadyInfo:
    """Start the plugin once, take its `Ready`, and end it. No process is left, cancelled or not.

    It runs under `spec.policy`: whoever asks makes that one of level `none`, without grants.

    Raises:
        WorkerUnavailableError: it could not be started or did not become ready, or declares too many tools.
    """
    log = logs.of(spec.plugin)
    async with started_worker(
        spec, f"{spec.plugin}-describe", log=log, settings=settings or WorkerSettings()
    ) as worker:
        greeting = worker.greeting
        worker.kill()  # nothing was called, so there is nothing that the process could lose
    if len(greeting.tools) > messages.MAX_TOOLS:
        raise WorkerUnavailableError(
            CallError(
                code=Code.CONFIG_PLUGIN_INVALID,
                message=f'plugin "{spec.plugin}" declares more than {messages.MAX_TOOLS} tools',
                details={"plugin": spec.plugin, "limit": "tools", "value": messages.MAX_TOOLS},
            )
        )
    return ReadyInfo(tuple(greeting.tools), greeting.sdk[:128], greeting.max_concurrent_calls, greeting.version[:128])
