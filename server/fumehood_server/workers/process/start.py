"""Launches the sandbox of one worker, and greets the worker in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import fumehood_sandbox
from fumehood_sandbox import LaunchError, PolicyError, SandboxError, SandboxUnavailableError

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.launches import end_off_loop, start_off_loop
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

_Started = TypeVar("_Started")


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

    Cancelling it leaves no process behind.

    Raises:
        WorkerUnavailableError: on entering: it could not be launched, or was not ready within
            `settings.start_timeout_s`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + settings.start_timeout_s
    launching = await started(
        spec, lambda: fumehood_sandbox.start(spec.policy, spec.program), undo=lambda made: made.abort()
    )
    process = await launched(launching, spec, settings)
    worker = await make_worker(
        spec, worker_id, process, log=log, settings=settings, plugin_requests=plugin_requests, one_call=one_call
    )
    async with worker:
        await worker.greet(deadline - clock())
        yield worker


async def make_worker(
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
        await end_off_loop(process.close)
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error


async def started(spec: WorkerSpec, start: Callable[[], _Started], undo: Callable[[_Started], object]) -> _Started:
    """What `start` returns on the launch thread. Cancelling it leaves nothing behind: that is undone.

    Raises:
        WorkerUnavailableError: it could not be started.
    """
    try:
        return await start_off_loop(start, undo)
    except (SandboxError, OSError) as error:
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error


async def launched(launching: Launching, spec: WorkerSpec, settings: WorkerSettings) -> SandboxedProcess:
    """The process of a start under way. Cancelling it leaves none behind.

    Raises:
        WorkerUnavailableError: it could not be launched within `settings.start_timeout_s`.
    """
    try:
        async with asyncio.timeout(settings.start_timeout_s):
            try:
                await _all_reported(launching)
                return await start_off_loop(launching.finish, undo=lambda process: process.close())
            except BaseException:
                await end_off_loop(launching.abort)
                raise
    except TimeoutError as error:
        raise WorkerUnavailableError(faults.never_ready_error(spec.plugin, settings.start_timeout_s, ())) from error
    except (SandboxError, OSError) as error:
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error


async def _all_reported(launching: Launching) -> None:
    """Wait until the stages have nothing more to report."""
    loop, reported = asyncio.get_running_loop(), asyncio.Event()
    watched = launching.fileno()
    while not launching.read_reports():
        reported.clear()
        loop.add_reader(watched, reported.set)
        try:
            await reported.wait()
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
