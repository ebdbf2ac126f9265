"""What a plugin says of itself, asked once."""

from __future__ import annotations

import itertools
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fumehood_sandbox import LaunchError, PythonModule

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.text import printable
from fumehood_server.workers.pools.interface import PoolContext
from fumehood_server.workers.pools.zygote import IMPORT_STEP, approve, greeted_zygote, refusal
from fumehood_server.workers.process.start import started_worker
from fumehood_server.workers.settings import WorkerSettings
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from fumehood.v1 import tool_pb2

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.secrets.redactor import Redactor
    from fumehood_server.workers.output.logs import LogSink
    from fumehood_server.workers.process.worker import ProcessWorker


_MASK = re.compile(rb"\[secret ([A-Za-z0-9_.-]+)\]")
"""As the redactor writes it."""


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    """A plugin's `Ready`. Hostile input: nothing of it was checked but its size and that it is protobuf."""

    tools: tuple[tool_pb2.ToolDefinition, ...]
    sdk: str
    max_concurrent_calls: int
    """The plugin's own wish. 0: none."""
    version: str = ""
    """The version that the plugin's code gives itself. Empty: it gives none."""
    fork_problem: str = ""
    """Why no process can be forked for each call after its import. Empty: it can, or the spec doesn't fork."""


async def describe(
    spec: WorkerSpec,
    *,
    logs: LogSink,
    settings: WorkerSettings | None = None,
    plugin_requests: PluginRequestHandler | None = None,
) -> ReadyInfo:
    """Start the plugin once, take its `Ready`, and end it. No process is left, cancelled or not.

    It runs under `spec.policy`: whoever asks makes that one of level `none`, without grants, bar for an MCP server that
    is asked with some: its secrets and its way to hosts are `plugin_requests`. Where the spec's program forks, it is
    also found out whether the plugin can be a zygote.

    Raises:
        WorkerUnavailableError: it could not be started or did not become ready, declares too many tools, or has a
            secret in the definition of one.
    """
    context = PoolContext(
        spec=spec,
        log=logs.of(spec.plugin),
        settings=settings or WorkerSettings(),
        ids=itertools.count(1),
        verify=None,
        plugin_requests=plugin_requests if spec.policy.relay or spec.secrets else None,
    )
    forks = isinstance(spec.program, PythonModule) and spec.program.forks > 0
    async with _described_zygote(context) if forks else _described_worker(context) as (worker, fork_problem):
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
    if spec.secrets:
        await _check_for_secrets(spec.plugin, greeting.tools, context.log.redactor)
    return ReadyInfo(
        tuple(greeting.tools),
        greeting.sdk[:128],
        greeting.max_concurrent_calls,
        greeting.version[:128],
        fork_problem,
    )


async def _check_for_secrets(plugin: str, tools: Iterable[tool_pb2.ToolDefinition], redactor: Redactor) -> None:
    """Refuse definitions with the value of a secret in them: they go into the lock, and to callers.

    Raises:
        WorkerUnavailableError: there are such.
    """
    for tool in tools:
        data = tool.SerializeToString()
        shown = await redactor.data_beside(data)
        if shown is not data:
            found = _MASK.search(shown)
            which = found[1].decode() if found else "that it was handed"
            name = printable(redactor.text(tool.name[:128]))
            message = f'plugin "{plugin}" has the value of the secret {which} in the definition of its tool {name}'
            error = CallError(code=Code.CONFIG_PLUGIN_INVALID, message=message, details={"plugin": plugin})
            raise WorkerUnavailableError(error)


@asynccontextmanager
async def _described_worker(context: PoolContext) -> AsyncIterator[tuple[ProcessWorker, str]]:
    worker_id = f"{context.spec.plugin}-describe"
    async with started_worker(
        context.spec,
        worker_id,
        log=context.log,
        settings=context.settings,
        plugin_requests=context.plugin_requests,
    ) as worker:
        yield worker, ""


@asynccontextmanager
async def _described_zygote(context: PoolContext) -> AsyncIterator[tuple[ProcessWorker, str]]:
    problem = ""
    async with greeted_zygote(context) as zygote:
        try:
            await approve(zygote, context.settings.start_timeout_s)
        except LaunchError as error:
            if error.step != IMPORT_STEP:
                raise WorkerUnavailableError(refusal(context.spec.plugin, error)) from error
            problem = printable(f"{error.problem}: {error.path}" if error.path else error.problem)
        yield zygote.worker, problem
