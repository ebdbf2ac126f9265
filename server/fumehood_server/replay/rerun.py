"""Runs recorded calls again in the `none` sandbox, with the values of their record, and compares what they return."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fumehood_sdk.divergence import Divergence, first_divergence

from fumehood_server.calls.steps.check import Checked, checked_result, output_of
from fumehood_server.config.config import SidecarConfig
from fumehood_server.errors import ConfigError, WorkerUnavailableError
from fumehood_server.model.call import CallContext, CallOutcome
from fumehood_server.model.outcome_json import outcome_from_json, outcome_to_json
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taken_values import TakenValues
from fumehood_server.model.worker import CancelReason, Invocation, InvocationResult, Worker
from fumehood_server.plugins.environments.environments import Environments, environments_folder
from fumehood_server.plugins.loading import load_plugin
from fumehood_server.plugins.manifest import try_manifest
from fumehood_server.plugins.refusal import PluginRefusedError
from fumehood_server.plugins.store import PluginStore, temporary_store
from fumehood_server.replay.harmless_tools import harmless_tools
from fumehood_server.replay.record import ReplayableCall, why_not
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.documents import check
from fumehood_server.validation.schemas import Validators
from fumehood_server.workers import LogSink, Pools, WorkerSettings

MAX_AT_A_TIME = 8
MAX_VALUE_BYTES = 2 * 1024 * 1024
"""What a call may ask for when it is run again: twice what was recorded of it at most."""


class Verdict(StrEnum):
    """What came of running a call again."""

    VERIFIED = "verified"
    """It asked for the same values and returned the same bytes."""
    DIVERGED = "diverged"
    NOT_RUN = "not_run"
    """It can't be run again; `why` says why."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """What came of one call."""

    call_id: str
    tool: str
    verdict: Verdict
    why: str = ""
    divergence: Divergence | None = None


_Tools = Mapping[str, RegisteredTool]


async def rerun_calls(
    config: SidecarConfig,
    calls: AsyncIterable[ReplayableCall],
    tell: Callable[[Rerun], Awaitable[None]],
    *,
    at_a_time: int = MAX_AT_A_TIME,
) -> None:
    """Run each call again that can be, so many at a time. `tell` is told what came of each, in the order of `calls`.

    No tool gets a grant, a secret or an answer of the sidecar's: nothing outside its process can change. No further
    call is taken from `calls` while `tell` takes its time. Cancelling this ends every process.
    """
    settings = WorkerSettings(start_timeout_s=config.server.start_timeout_s)
    with temporary_store() as copies:
        async with Pools(LogSink(), settings) as pools:
            runner = _Runner(config, copies, pools)
            async with asyncio.TaskGroup() as tasks:
                running: deque[asyncio.Task[Rerun]] = deque()
                async for call in calls:
                    if len(running) >= at_a_time:
                        await tell(await running.popleft())
                    running.append(tasks.create_task(runner.rerun(call)))
                while running:
                    await tell(await running.popleft())


class _Runner:
    """Loads each plugin once, and runs calls of its tools."""

    def __init__(self, config: SidecarConfig, copies: PluginStore, pools: Pools) -> None:
        self._config = config
        self._copies = copies
        self._pools = pools
        self._loading = asyncio.Lock()
        self._loaded: dict[str, _Tools | str] = {}
        self._validators = Validators()

    async def rerun(self, call: ReplayableCall) -> Rerun:
        """Run one call again, if it can be."""
        why = why_not(call)
        if why:
            return _not_run(call, why)
        async with self._loading:
            name = f"{call.plugin} {call.plugin_digest}"
            if name not in self._loaded:
                self._loaded[name] = await self._load(call.plugin, call.plugin_digest)
            found = self._loaded[name]
        if isinstance(found, str):
            return _not_run(call, found)
        tool = found.get(call.definition_digest)
        if tool is None or tool.spec is None:
            return _not_run(call, f"plugin {call.plugin} declares this tool in another way now")
        return await self._run(call, tool, tool.spec)

    async def _load(self, name: str, digest: str) -> _Tools | str:
        """The plugin's tools, or why there are none."""
        config = self._config
        folder = next((each.path for each in config.plugins if try_manifest(each.path).name == name), None)
        if folder is None:
            return f"the configuration has no plugin {name}"
        try:
            plugin = await load_plugin(
                folder,
                sources=self._copies,
                describe=self._pools.describe,
                limits=config.limits,
                sandbox=config.sandbox,
                environments=Environments(environments_folder(config)),
                pins=lambda _: None,
            )
            if plugin.digest != digest:
                return f"the code of plugin {name} has changed: it was {digest}, and is {plugin.digest}"
            if plugin.environment_problem is not None:
                return plugin.environment_problem.message
            return harmless_tools(config, plugin)
        except (PluginRefusedError, ConfigError) as problem:
            return f"plugin {name} can't be loaded: {problem}"

    async def _run(self, call: ReplayableCall, tool: RegisteredTool, spec: WorkerSpec) -> Rerun:
        values = call.values or TakenValues()
        try:
            lease = await self._pools.acquire(spec)
        except WorkerUnavailableError as problem:
            return _not_run(call, f"its plugin can't be started: {problem.error.message}")
        try:
            result = await _invoke(call, tool, lease.worker, values)
        finally:
            lease.release()
        taken = () if result.values is None else result.values.values
        asked = [(each.kind, each.name, each.number) for each in taken]
        document = output_of(tool, spec, result)
        checked = None
        if document is not None:
            checked = await asyncio.to_thread(check, document, self._validators, PROCESS)
        now = outcome_to_json(_outcome(call, checked_result(tool, spec, result, checked)))
        divergence = first_divergence(values.values, asked, call.result or b"", now)
        verdict = Verdict.VERIFIED if divergence is None else Verdict.DIVERGED
        return Rerun(call.call_id, call.tool, verdict, "", divergence)


def _not_run(call: ReplayableCall, why: str) -> Rerun:
    return Rerun(call.call_id, call.tool, Verdict.NOT_RUN, why)


async def _invoke(call: ReplayableCall, tool: RegisteredTool, worker: Worker, values: TakenValues) -> InvocationResult:
    attempt = worker.invoke(
        Invocation(
            call_id=call.call_id,
            tool=tool.definition.name,
            arguments_json=(call.arguments or b"").decode(errors="surrogatepass"),
            context=CallContext(**call.context),
            attempt=1 if call.outcome is None else max(call.outcome.attempts, 1),
            timeout_s=tool.timeout_s,
            on_update=None,
            max_recorded_bytes=MAX_VALUE_BYTES,
            replay=values,
        )
    )
    try:
        async with asyncio.timeout(tool.timeout_s):
            return await attempt.result()
    except TimeoutError:
        return await attempt.end(CancelReason.DEADLINE)
    except asyncio.CancelledError:
        await attempt.end(CancelReason.CALLER)
        raise


def _outcome(call: ReplayableCall, checked: Checked) -> CallOutcome:
    """What the tool gives now, as the record has it: with what was mended then, since arguments are recorded mended."""
    recorded = CallOutcome(call_id=call.call_id, tool=call.tool)
    if call.result:
        with contextlib.suppress(ValueError):  # a secret that was taken out of it may have left no JSON
            recorded = outcome_from_json(call.result, call_id=call.call_id, tool=call.tool, attempts=1)
    return CallOutcome(
        call_id=call.call_id,
        tool=call.tool,
        content=checked.content,
        details_json=checked.details_json,
        terminate=checked.terminate,
        error=checked.error,
        attempts=1,
        coercions=recorded.coercions,
    )
