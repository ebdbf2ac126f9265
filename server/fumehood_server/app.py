"""The sidecar: every part put together, from the first line of the log to the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import cast

import uvloop

from fumehood_server.allocator import trimmed_memory
from fumehood_server.approval_desk import open_approvals
from fumehood_server.callers import CallerRules, TokenStore
from fumehood_server.calls import Executor
from fumehood_server.calls.resolution import Resolver
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.config_file import JournalStore
from fumehood_server.config.listeners import own_listeners
from fumehood_server.config.load import load_config
from fumehood_server.config.served import check_served, checked
from fumehood_server.config_reload import ConfigReloader, ReadConfig, log_notes, reload_on_hangup
from fumehood_server.errors import FumehoodError
from fumehood_server.hooks import HookChain, HookRegistry, LoadedMiddleware, load_middleware
from fumehood_server.log_lines import forward_plugin_line, held_up, loop_fields, tokens_unusable
from fumehood_server.machine import connection_settings, make_state_folder, sandbox_problem
from fumehood_server.mcp.supervisor import McpHealth, open_mcp
from fumehood_server.model.bindings import Bindings
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.tool import Reason
from fumehood_server.observation import Sampler
from fumehood_server.orchestration.call_inferences import CallInferences
from fumehood_server.orchestration.opening import open_orchestrator
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.plugins.catalog import STORE_NAME, Catalog, Log
from fumehood_server.plugins.leftovers import remove_leftovers
from fumehood_server.plugins.pin_records import PinRecords
from fumehood_server.plugins.store import LiveFolders, PluginSources, PluginStore
from fumehood_server.policy import QuotaSet, RuleSet
from fumehood_server.policy.unknown_tools import unknown_tools
from fumehood_server.recording import Recording, recording_of
from fumehood_server.request_records import RequestRecords
from fumehood_server.rpc import (
    Admission,
    RefusalRecords,
    RequestReader,
    ResultWriter,
    ServedCertificates,
    ServerContext,
    UnreadAnswers,
    disconnect_unread,
    serving,
)
from fumehood_server.secrets import SecretStore
from fumehood_server.signals import orders
from fumehood_server.telemetry import LoopWatchdog, configure_logging, get_logger, open_telemetry
from fumehood_server.webhook import open_webhook
from fumehood_server.workers import LogSink, Pools, WorkerSettings

SWITCH_INTERVAL_S = 0.0001
"""How long a thread keeps the interpreter's lock from the event loop's (sys.setswitchinterval). With Python's 5 ms each
system call of the loop took as long while a thread computed."""

Ready = Callable[[tuple[str, ...]], None]
"""Told the addresses, as gRPC writes them, once calls are taken there."""


def serve(
    config: SidecarConfig,
    *,
    locked: bool = False,
    ready: Ready | None = None,
    terminal: bool | None = None,
    from_folders: bool = False,
    pin_remedy: str = "",
    read_config: ReadConfig | None = None,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGQUIT, then drain. Returns the exit status.

    A second signal ends the process at once. Must be called on the main thread. `locked` refuses plugins that are not
    pinned yet; `terminal` says whether the log is for a person or JSON, and None asks stderr. `from_folders` is for
    `fumehood plugin dev` alone: plugins then run from their folders and not from copies. `pin_remedy` is for a command
    that pins its plugin by itself: what is told in place of how `fumehood plugin add` accepts one. `read_config` reads
    the configuration again for a reload; None reads its file alone.

    Raises:
        ConfigError: the lock can't be read or written, or middleware can't be loaded.
        ListenFailedError: an address can't be had.
        StateFolderError: the state folder can't be made or written to.
    """
    middleware = load_middleware(config.middleware, config.path or config.folder)
    check_served(config)
    flush = configure_logging(config.server.log_level.value, terminal=terminal)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        # Measured: a tenth less of the processor for each call than the standard library's loop.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sources: PluginSources = (
                LiveFolders() if from_folders else PluginStore(config.server.state_dir / STORE_NAME)
            )
            with contextlib.closing(sources):
                read = checked(read_config or functools.partial(load_config, config.path))
                return runner.run(
                    _serve(
                        config,
                        sources,
                        read,
                        locked=locked,
                        pin_remedy=pin_remedy,
                        ready=ready,
                        flush=flush,
                        middleware=middleware,
                    )
                )
    except BaseExceptionGroup as group:
        cause = _only(group)
        if isinstance(cause, FumehoodError):
            raise cause from group
        raise
    finally:
        flush()


def _only(error: BaseException) -> BaseException:
    """What a task group's error is about, when it is about one thing."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _serve(
    config: SidecarConfig,
    sources: PluginSources,
    read_config: ReadConfig,
    *,
    locked: bool,
    pin_remedy: str,
    ready: Ready | None,
    flush: Callable[[], None],
    middleware: Sequence[LoadedMiddleware],
) -> int:
    """Start inside out and end outside in: what is used is there before and after its users."""
    log = get_logger()
    stop, hangup = asyncio.Event(), asyncio.Event()
    watchdog = LoopWatchdog(
        functools.partial(held_up, log), lambda period: log.info("loop_figures", **loop_fields(period))
    )
    with orders(stop, hangup, flush):
        make_state_folder(config)
        async with recording_of(config) as recording:
            served = await _serve_recorded(
                config,
                sources,
                read_config,
                recording,
                locked=locked,
                pin_remedy=pin_remedy,
                ready=ready,
                stop=stop,
                hangup=hangup,
                watchdog=watchdog,
                middleware=middleware,
            )
    if served:
        log.info("stopped", **loop_fields(watchdog.figures))
    return 0


async def _serve_recorded(
    config: SidecarConfig,
    sources: PluginSources,
    read_config: ReadConfig,
    recording: Recording,
    *,
    locked: bool,
    pin_remedy: str,
    ready: Ready | None,
    stop: asyncio.Event,
    hangup: asyncio.Event,
    watchdog: LoopWatchdog,
    middleware: Sequence[LoadedMiddleware],
) -> bool:
    """Whether it came to serve: False when it was told to stop before."""
    log = get_logger()
    server, journal = config.server, recording.journal
    catalog: Catalog | None = None

    async def verify(spec: WorkerSpec) -> Reason | None:
        # Workers that describe a plugin are started by another way, while there is no catalog yet.
        return await catalog.verify(spec) if catalog is not None else Reason("starting", "the sidecar is starting")

    certificates = None if server.tls is None else await ServedCertificates.read(server.tls)
    callers = CallerRules(config.callers)
    hooks = HookChain(middleware, HookRegistry(config.hooks, callers))
    logs = LogSink(forward_plugin_line)
    own = own_listeners(config)
    refusals, request_records = RefusalRecords(journal), RequestRecords(journal)
    plugin_requests = PluginRequests(
        SecretStore(config.secrets),
        logs,
        limits=config.egress.limits,
        records=request_records,
        propagate_to=config.telemetry.propagate_to,
        own=own,
    )
    settings = WorkerSettings(idle_s=server.idle_stop_s, start_timeout_s=server.start_timeout_s)
    async with Pools(logs, settings, verify=verify, plugin_requests=plugin_requests, journal=journal) as pools:
        sandbox = sandbox_problem(config.sandbox, log)
        if sandbox is not None:
            log.error("sandbox_unavailable", message=sandbox.message, remedy=sandbox.remedy)
        catalog = await _unless(
            stop,
            Catalog.load(
                config,
                sources=sources,
                describe=pools.describe,
                running=lambda: {worker.spec.plugin_digest for worker in pools.workers()},
                locked=locked,
                log=cast("Log", log),
                sandbox=sandbox,
                pins=PinRecords(journal, await journal.pins()),
                pin_remedy=pin_remedy,
            ),
        )
        if catalog is None:
            return False
        if isinstance(sources, PluginStore):  # and not `plugin dev`, whose environments are another's
            gone = await asyncio.to_thread(remove_leftovers, config, sources)
            if gone:
                log.info("environments_removed", paths=[str(path) for path in gone])
        policy = await _rules(config, catalog, cast("Log", log))
        quotas = QuotaSet(config.quotas)
        models = CallInferences(journal, quotas)
        reloader = ConfigReloader(
            config,
            read_config,
            catalog=catalog,
            pools=pools,
            describe=pools.describe,
            plugin_requests=plugin_requests,
            log=cast("Log", log),
            journal=journal,
            document=recording.document,
            policy=policy,
            quotas=quotas,
            callers=callers,
            certificates=certificates,
            hooks=hooks.registry,
        )
        unread, mcp_health = UnreadAnswers(disconnect_unread), McpHealth()
        async with (
            trimmed_memory(),
            open_telemetry(config.telemetry) as telemetry,
            open_approvals(journal, lambda: reloader.config, Bindings(catalog, policy)) as approvals,
            open_webhook(config, approvals, callers, None if telemetry is None else telemetry.metrics, own.add_targets),
            Executor(
                catalog,
                pools,
                policy=policy,
                quotas=quotas,
                approvals=approvals,
                models=models,
                journal=journal,
                max_concurrent_calls=server.max_concurrent_calls,
                journal_required=config.journal.required,
                configuration=lambda: reloader.digest,
                payloads=config.journal.payloads,
                redactor_of=plugin_requests.redactor,
                observer=None if telemetry is None else telemetry.observer,
                rights=callers,
                retries=lambda: reloader.config.retry,
                hooks=hooks,
                max_arguments_bytes=server.max_arguments_bytes,
            ) as executor,
            open_orchestrator(
                lambda: reloader.config,
                lambda: reloader.digest,
                tools=catalog,
                executor=executor,
                rights=callers,
                quotas=quotas,
                journal=journal,
                reads=journal.reads,
                telemetry=telemetry,
                models=models,
            ) as orchestrator,
            serving(
                ServerContext(
                    catalog=catalog,
                    executor=executor,
                    orchestrator=orchestrator,
                    journal=journal,
                    journal_reads=journal.reads,
                    resolver=Resolver(journal),
                    results=ResultWriter(unrecorded=config.journal.store is JournalStore.OFF),
                    pools=pools,
                    logs=logs,
                    admission=Admission(
                        max_arguments_bytes=server.max_arguments_bytes,
                        traces=None if telemetry is None else telemetry.traces,
                    ),
                    unread=unread,
                    reader=RequestReader(unread),
                    metrics=None if telemetry is None else telemetry.metrics,
                    reload_config=reloader.reload,
                    compare_config=reloader.compare,
                    config=lambda: reloader.config,
                    refusals=refusals,
                    approvals=approvals,
                    hooks=hooks,
                    callers=callers,
                    tokens=TokenStore(server.token_file, functools.partial(tokens_unusable, log)),
                ),
                listen=server.listen,
                socket_access=server.socket_access,
                reflect=server.reflection,
                settings=connection_settings(server, log),
                allow_anonymous=server.allow_anonymous,
                certificates=certificates,
                mcp=config.mcp,
                mcp_serves=lambda: None if config.mcp is None else mcp_health.serves,
            ) as rpc,
            open_mcp(config, mcp_health, own.add_targets),
        ):
            own.add_targets(rpc.targets)
            mcp_health.on_change = rpc.health.changed
            if telemetry is not None:
                telemetry.metrics.sample = Sampler(
                    metrics=telemetry.metrics,
                    executor=executor,
                    pools=pools,
                    journal=journal,
                    logs=logs,
                    watchdog=watchdog,
                ).sample
            available = sum(not tool.reasons for tool in catalog.tools)
            log.info(
                "serving",
                addresses=rpc.targets,
                plugins=len(catalog.plugins),
                tools=len(catalog.tools),
                available_tools=available,
            )
            # A full collection would look at all that was imported and loaded: 60,000 objects, 50 ms of the loop.
            gc.collect()
            gc.freeze()
            with watchdog.watching():
                if ready is not None:
                    ready(rpc.targets)
                async with asyncio.TaskGroup() as tasks:
                    watches = [tasks.create_task(reload_on_hangup(hangup, reloader, rpc.reloaded))]
                    if certificates is not None:
                        watches.append(tasks.create_task(certificates.watch()))
                    await stop.wait()
                    for each in watches:
                        each.cancel()
                log.info("draining", calls=executor.calls_in_flight, grace_s=server.drain_s)
                await rpc.drain(server.drain_s)
            refusals.close()
    request_records.close()
    return True


async def _rules(config: SidecarConfig, catalog: Catalog, log: Log) -> RuleSet:
    """The rules of the file. The log tells of tools that they name and that there are not."""
    log_notes(log, await asyncio.to_thread(unknown_tools, config.rules, [each.name for each in catalog.tools]))
    return await asyncio.to_thread(RuleSet, config.rules)


async def _unless(stop: asyncio.Event, loading: Coroutine[object, object, Catalog]) -> Catalog | None:
    """The catalog, or None when the sidecar was told to stop before it was read."""
    async with asyncio.TaskGroup() as tasks:
        load, stopped = tasks.create_task(loading), tasks.create_task(stop.wait())
        await asyncio.wait((load, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not load.done():
            load.cancel()
    return None if load.cancelled() else load.result()
