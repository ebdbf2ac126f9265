"""Starts one worker: sandbox, `Hello`, `Ready`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import fumehood_sandbox
from fumehood_sandbox import LaunchError, PolicyError, SandboxError, SandboxUnavailableError

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.text import printable
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.process.worker import ProcessWorker
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood_sandbox import Launching, SandboxedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.settings import WorkerSettings


async def start(
    spec: WorkerSpec,
    worker_id: str,
    *,
    log: PluginLog,
    settings: WorkerSettings,
    on_change: Callable[[ProcessWorker], None],
    plugin_requests: PluginRequestHandler | None = None,
    one_call: bool = False,
) -> ProcessWorker:
    """A worker that is ready. The caller owns it from then on. With `one_call` it ends when it has served one.

    Must be awaited on the thread whose loop runs for as long as the worker: the kernel kills the worker when the
    thread that started it ends (PR_SET_PDEATHSIG). Cancelling it leaves no process behind.

    Raises:
        WorkerUnavailableError: it could not be launched, or was not ready within `settings.start_timeout_s`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.start_timeout_s
    try:
        launching = fumehood_sandbox.start(spec.policy, spec.program)
    except (SandboxError, OSError) as error:
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error
    process = await launched(launching, spec, settings)
    try:
        worker = ProcessWorker(
            spec,
            worker_id,
            process,
            log=log,
            settings=settings,
            start_timeout_s=max(deadline - loop.time(), 0.0),
            on_change=on_change,
            plugin_requests=plugin_requests,
            one_call=one_call,
        )
    except OSError as error:
        process.close()
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error
    await opened(worker)
    return worker


async def opened(worker: ProcessWorker) -> None:
    """Wait until a worker is ready. If it never is, or nobody waits any more, no process is left.

    Raises:
        WorkerUnavailableError: it died first, was not ready in time, or is not what was accepted.
    """
    try:
        # Bounded by the worker's own timers. wait() leaves the future alone when this task is cancelled.
        await asyncio.wait((worker.opened,))
        failure = worker.opened.result() or await _unrecognised(worker)
        if failure is None and worker.state is not WorkerState.READY:
            # What it said right after Ready has ended it before this task had its turn.
            failure = worker.cause or faults.condemned_error(worker.spec.plugin)
    except BaseException:
        await ended(worker)
        raise
    if failure is not None:
        await ended(worker)
        raise WorkerUnavailableError(failure)


async def _unrecognised(worker: ProcessWorker) -> CallError | None:
    """Why a worker that is ready gets no call: it declares other tools than those that were accepted."""
    spec, sent = worker.spec, worker.greeting.tools
    if spec.recognise is None:
        return None
    if len(sent) > messages.MAX_TOOLS:
        return faults.other_definitions_error(spec.plugin, f"more than {messages.MAX_TOOLS} tools")
    problem = await spec.recognise([tool.SerializeToString(deterministic=True) for tool in sent])
    return faults.other_definitions_error(spec.plugin, problem) if problem else None


async def ended(worker: ProcessWorker) -> None:
    """Kill it and see it gone. Bounded by `kill_confirm_s` within the worker.

    Whoever is cancelled is often cancelled again, by the next who closes what it belongs to. It goes on to the end all
    the same, and raises then: what it came away from earlier would be a dead process that nobody has reaped.
    """
    worker.kill()
    cancelled: asyncio.CancelledError | None = None
    while not worker.dead.done():
        try:
            await asyncio.wait((worker.dead,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


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
