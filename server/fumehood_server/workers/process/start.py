"""Launches the sandbox of one worker, and greets the worker in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import fumehood_sandbox
from fumehood_sandbox import LaunchError, PolicyError, SandboxError, SandboxUnavailableError

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.text import printable
from fumehood_server.workers import faults
from fumehood_server.workers.process.worker import ProcessWorker

if TYPE_CHECKING:
    from fumehood_sandbox import Launching, SandboxedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.settings import WorkerSettings


@asynccontextmanager
async def started_worker(
    spec: WorkerSpec,
    worker_id: str,
    *,
    log: PluginLog,
    settings: WorkerSettings,
    plugin_requests: PluginRequestHandler | None = None,
    one_call: bool = False,
) -> AsyncIterator[ProcessWorker]:
    """A worker that is ready, within the block. Leaving the block ends it; see `ProcessWorker`.

    Must be entered on the thread whose loop runs for as long as the worker: the kernel kills the worker when the
    thread that started it ends (PR_SET_PDEATHSIG). Cancelling it leaves no process behind.

    Raises:
        WorkerUnavailableError: on entering: it could not be launched, or was not ready within
            `settings.start_timeout_s`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + settings.start_timeout_s
    try:
        launching = fumehood_sandbox.start(spec.policy, spec.program)
    except (SandboxError, OSError) as error:
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error
    process = await launched(launching, spec, settings)
    worker = make_worker(
        spec, worker_id, process, log=log, settings=settings, plugin_requests=plugin_requests, one_call=one_call
    )
    async with worker:
        await worker.greet(deadline - clock())
        yield worker


def make_worker(
    spec: WorkerSpec,
    worker_id: str,
    process: SandboxedProcess,
    *,
    log: PluginLog,
    settings: WorkerSettings,
    plugin_requests: PluginRequestHandler | None = None,
    one_call: bool = False,
) -> ProcessWorker:
    """A worker of a process that runs, which is closed if there can be none.

    Raises:
        WorkerUnavailableError: the sidecar has no descriptors left, or the process is gone.
    """
    try:
        return ProcessWorker(
            spec, worker_id, process, log=log, settings=settings, plugin_requests=plugin_requests, one_call=one_call
        )
    except OSError as error:
        process.close()
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error


async def launched(launching: Launching, spec: WorkerSpec, settings: WorkerSettings) -> SandboxedProcess:
    """The process of a start under way. Cancelling it leaves none behind.

    Raises:
        WorkerUnavailableError: it could not be launched within `settings.start_timeout_s`.
    """
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    loop.add_reader(launching.fileno(), finished.set)
    try:
        async with asyncio.timeout(settings.start_timeout_s):
            return await _advanced(launching, finished)
    except TimeoutError as error:
        raise WorkerUnavailableError(faults.never_ready_error(spec.plugin, settings.start_timeout_s, ())) from error
    except (SandboxError, OSError) as error:
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error
    finally:
        launching.abort()


async def _advanced(launching: Launching, reported: asyncio.Event) -> SandboxedProcess:
    """Wait for reports until the process is there, with its descriptor watched no more."""
    loop = asyncio.get_running_loop()
    watched = launching.fileno()
    try:
        while True:
            await reported.wait()
            reported.clear()
            # advance() closes the descriptor when it is done, and a closed one can't be taken out of the loop.
            loop.remove_reader(watched)
            process = launching.advance()
            if process is not None:
                return process
            loop.add_reader(watched, reported.set)
    finally:
        loop.remove_reader(watched)


def launch_error(plugin: str, error: SandboxError | OSError) -> CallError:
    """What a call is told of a sandbox that could not be had."""
    if isinstance(error, SandboxUnavailableError):
        return CallError(
            code=Code.CONFIG_SANDBOX_UNAVAILABLE,
            message=f'plugin "{plugin}" can\'t be held to its policy on this machine: {printable(error)}',
            details={"plugin": plugin, "feature": error.feature, "remedy": error.remedy},
        )
    if isinstance(error, PolicyError):
        return CallError(
            code=Code.CONFIG_SANDBOX_UNAVAILABLE,
            message=f'the policy of plugin "{plugin}" can\'t be enforced: {printable(error)}',
            details={"plugin": plugin, "field": error.field},
        )
    details: dict[str, object] = {"plugin": plugin, "phase": "launch"}
    if isinstance(error, LaunchError):
        details |= {"step": error.step, "path": printable(error.path), "errno": error.errno}
    elif isinstance(error, OSError):
        # The sidecar's own limits: descriptors, processes, memory.
        details |= {"step": "sidecar", "errno": error.errno or 0}
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'the sandbox of plugin "{plugin}" could not be started: {printable(error)}',
        retryable=True,
        details=details,
    )
