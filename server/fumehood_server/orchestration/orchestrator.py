"""Admits runs and owns their tasks: the one way in, as the executor is for calls."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.places import SharedPlaces
from fumehood_server.config.engines import OrchestrationConfig
from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.journal.reads import JournalReads
from fumehood_server.model.batches import BatchConfig
from fumehood_server.model.caller import Caller, CallerRights, recorded_name
from fumehood_server.model.journal import Journal
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.quotas import NO_QUOTAS, Quotas
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads
from fumehood_server.orchestration.answers import request_hash
from fumehood_server.orchestration.budget import narrowest
from fumehood_server.orchestration.context import ModeResult, RunContext
from fumehood_server.orchestration.engines.engine import Engine, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError, SuspendedError, failed
from fumehood_server.orchestration.messages import Message
from fumehood_server.orchestration.mode_table import MODES
from fumehood_server.orchestration.recorded import RecordedRun, find_run
from fumehood_server.orchestration.refusals import id_in_use, left_off, not_recorded, not_resumable, too_many_runs
from fumehood_server.orchestration.request import Budget, SystemRequest
from fumehood_server.orchestration.request_json import request_to_json
from fumehood_server.orchestration.response import SystemResponse
from fumehood_server.orchestration.run import Run, RunBegin, RunParts, deadline_of
from fumehood_server.orchestration.run_handle import SHUTDOWN, RunHandle
from fumehood_server.orchestration.sessions import HistoryPolicy, read_history
from fumehood_server.orchestration.tool_offers import ToolOffers
from fumehood_server.orchestration.tools import Calls, RunTools
from fumehood_server.telemetry import RunObserver, get_logger


class Tools(Protocol):
    """Where tools are found: see `fumehood_server.plugins.catalog.Catalog`."""

    @property
    def tools(self) -> tuple[RegisteredTool, ...]:
        """All of them, the unavailable ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestrationParts:
    """What runs are carried out with."""

    engines: Mapping[str, Engine]
    tools: Tools
    calls: Calls
    checks: DocumentChecks
    rights: CallerRights
    journal: Journal
    reads: JournalReads | None
    """None: nothing is recorded."""
    window_s: float
    """How long a call's id stands for that call: a run that is older is not gone on with."""
    payloads: Payloads
    configuration: Callable[[], str]
    batch: Callable[[], BatchConfig]
    settings: Callable[[], OrchestrationConfig]
    quotas: Quotas = NO_QUOTAS
    observer: RunObserver | None = None
    """None: nobody asked for telemetry."""


class Orchestrator:
    """An async context manager; for one event loop. Leaving it cancels what is under way and waits for it."""

    def __init__(self, parts: OrchestrationParts) -> None:
        """Without a run."""
        self._parts = parts
        self.checks = parts.checks
        """Checks what models write, for a replay as well."""
        self._runs: dict[str, RunHandle] = {}
        self._places = SharedPlaces(0)
        """Theirs: as many as the settings of the moment say."""
        self._sessions: dict[str, _Session] = {}
        self._offers = ToolOffers()
        self._tasks = asyncio.TaskGroup()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Own the runs' tasks."""
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Cancel all runs and wait for their ends."""
        self.close_admission()
        self.cancel_all()
        await self._tasks.__aexit__(None, None, None)

    def close_admission(self) -> None:
        """Refuse new runs from now on."""
        self._is_closed = True

    def suspend(self) -> None:
        """Have runs that can be asked for again begin nothing more, and refuse new ones: see `Run.suspend`."""
        self.close_admission()
        for each in tuple(self._runs.values()):
            each.suspend()

    def cancel_all(self) -> None:
        """End every run now."""
        for each in tuple(self._runs.values()):
            each.cancel(SHUTDOWN)

    async def idle(self) -> None:
        """Return once no run is under way."""
        while self._runs:
            tasks = [asyncio.ensure_future(each.response()) for each in self._runs.values()]
            await asyncio.wait(tasks)
            for each in tasks:
                each.exception()

    def find(self, request_id: str, caller: Caller) -> RunHandle | None:
        """The run of this id that is under way, if it is the caller's own or the caller is an operator."""
        found = self._runs.get(request_id)
        if found is None or not (found.request.caller.name == caller.name or self._parts.rights.is_operator(caller)):
            return None
        return found

    def start(self, request: SystemRequest, *, join_only: bool = False) -> tuple[RunHandle, bool]:
        """Admit a run and give it a task; or join the one of its id that is under way, and say so.

        `join_only`: begin none of which nothing is known; `response` then raises.

        Raises:
            RefusedError: it is not admitted.
        """
        data = request_to_json(request)
        digest = request_hash(data)
        other = self._runs.get(request.request_id)
        if other is not None:
            if other.digest != digest or other.request.caller.name != request.caller.name:
                raise id_in_use(request.request_id)
            return other, True
        if self._is_closed:
            raise RefusedError(Refusal(RefusalReason.DRAINING, "the sidecar is shutting down: call another one"))
        self._places.total = self._parts.settings().max_runs
        shortage = self._places.take(request.caller.recorded, by_unix=request.caller.is_by_unix)
        if shortage is not None:
            raise RefusedError(too_many_runs(shortage, self._places.total))
        handle = RunHandle(request, digest, join_only=join_only)
        self._runs[request.request_id] = handle
        handle.runs_in(self._tasks.create_task(self._run(handle, data)))
        return handle, False

    async def _run(self, handle: RunHandle, request: Mapping[str, Any]) -> SystemResponse | RefusedError:
        try:
            return await self._respond(handle, request)
        except RefusedError as exc:  # raised by `response`; here it would end the group
            return exc
        except JournalUnavailableError as exc:
            return not_recorded(exc)
        except SuspendedError:
            return left_off(
                handle, "the sidecar shuts down: send the request again, with the same request_id, and the run goes on"
            )
        except asyncio.CancelledError:  # before its first state
            return left_off(handle, f"the run was ended before it began: {handle.why_ended}")
        except Exception as exc:  # noqa: BLE001 - in the group it would end the other runs, and the sidecar
            get_logger().error("run_fault", request_id=handle.request.request_id, exc_info=exc)
            text = "the run failed by a fault of the sidecar, whose log has more. What it did is on record"
            return RefusedError(Refusal(RefusalReason.INTERNAL, text))
        finally:
            del self._runs[handle.request.request_id]
            self._places.give_back(handle.request.caller.recorded)

    async def _respond(self, handle: RunHandle, request_json: Mapping[str, Any]) -> SystemResponse:
        """The recorded response, or that of a run which begins or goes on.

        What ends it while it is looked up, or waits for its session, is on record as its end.
        """
        try:
            handle.begin()
            recorded = await self._find(handle)
            if isinstance(recorded, SystemResponse):
                return recorded
            async with self._session(handle):
                history = await self._history(handle.request) if recorded is None else recorded.history
                return await self._carry_out(handle, request_json, recorded, history)
        except (TimeoutError, asyncio.CancelledError) as exc:
            if handle.run is not None or handle.is_left_off:
                raise
            recorded = await self._find(handle)
            if isinstance(recorded, SystemResponse):
                return recorded
            return await self._carry_out(handle, request_json, recorded, (), ended=exc)

    @contextlib.asynccontextmanager
    async def _session(self, handle: RunHandle) -> AsyncIterator[None]:
        """Held while one of a session's runs is under way: the next one is told what it added. Raises TimeoutError."""
        request = handle.request
        if not request.session_id:
            yield
            return
        deadline = deadline_of(request, handle.admitted_at, self._parts.settings().timeout_s)
        session = self._sessions.setdefault(request.session_id, _Session())
        session.runs += 1
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                await session.turn.acquire()
            try:
                yield
            finally:
                session.turn.release()
        finally:
            session.runs -= 1
            if not session.runs:
                del self._sessions[request.session_id]

    async def _find(self, handle: RunHandle) -> RecordedRun | SystemResponse | None:
        """What was answered, or what there is to go on from. None: nothing is known of it."""
        request, parts = handle.request, self._parts
        recorded = None
        if request.is_named and parts.reads is not None:
            recorded = await find_run(parts.reads, request.request_id)
        if recorded is None:
            if handle.join_only:
                text = f'nothing is known of a run of the id "{request.request_id}"'
                raise RefusedError(Refusal(RefusalReason.RUN_NOT_FOUND, text))
            return None
        handle.resumed = True
        response = _recorded_response(handle, recorded, parts.window_s)
        if response is not None:
            return response
        return recorded

    async def _history(self, request: SystemRequest) -> tuple[Message, ...]:
        """What was said before in its session."""
        if not request.session_id:
            return ()
        parts = self._parts
        if parts.reads is None or parts.payloads is not Payloads.FULL:
            text = 'sessions need a journal that keeps payloads ([journal] payloads = "full")'
            raise RefusedError(Refusal(RefusalReason.SESSION_REFUSED, text))
        return await read_history(parts.reads, request.session_id, request.caller, _history(parts.settings()))

    async def _carry_out(
        self,
        handle: RunHandle,
        request_json: Mapping[str, Any],
        recorded: RecordedRun | None,
        history: tuple[Message, ...],
        *,
        ended: BaseException | None = None,
    ) -> SystemResponse:
        """`ended`: why it ends before its first step."""
        request, parts = handle.request, self._parts
        engine = parts.engines.get(request.engine or parts.settings().engine)
        name = "" if engine is None else engine.name
        begin = RunBegin(request_json, handle.digest, name, parts.configuration(), handle.admitted_at)
        run = handle.run = self._prepare(handle, engine, begin, recorded, history)
        return await run.carry_out(self._mode(request, engine, ended), lambda: handle.why_ended)

    def _prepare(
        self,
        handle: RunHandle,
        engine: Engine | None,
        begin: RunBegin,
        recorded: RecordedRun | None,
        history: tuple[Message, ...],
    ) -> Run:
        request, parts, settings = handle.request, self._parts, self._parts.settings()
        return Run(
            request,
            RunParts(
                engine=engine or _NoEngine(),
                tools=self._tools(request),
                calls=parts.calls,
                checks=parts.checks,
                batch=parts.batch,
                journal=parts.journal,
                payloads=parts.payloads,
                quotas=parts.quotas,
                observer=parts.observer,
                budget=narrowest(request.budget, _budget(settings)),
                timeout_s=settings.timeout_s,
                history=history,
            ),
            begin,
            handle.log,
            recorded,
        )

    def _tools(self, request: SystemRequest) -> RunTools:
        """What the caller may call of what it allows, where it can be run now."""
        allowed, may_call = request.allowed_tools, self._parts.rights.may_call
        found = {
            tool.name: tool
            for tool in self._parts.tools.tools
            if not tool.reasons and (allowed is None or tool.name in allowed) and may_call(request.caller, tool.name)
        }
        return RunTools(found, self._offers.of(found))

    def _mode(
        self, request: SystemRequest, engine: Engine | None, ended: BaseException | None
    ) -> Callable[[RunContext], Awaitable[ModeResult]]:
        async def refuse(_run: RunContext) -> ModeResult:
            raise ended or _no_engine(request.engine, sorted(self._parts.engines))

        return refuse if engine is None or ended is not None else MODES[request.mode]


@dataclass(slots=True)
class _Session:
    """A session that has runs."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    runs: int = 0
    """Under way and waiting: an unlocked lock may be about to be handed to the next one."""


class _NoEngine:
    """In the place of one that there is not."""

    name = ""
    attempts = 1
    constrains_schema = constrains_grammar = False

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:  # noqa: ARG002
        raise AssertionError("a run without an engine asks none")


def _budget(config: OrchestrationConfig) -> Budget:
    return Budget(max_tokens=config.max_tokens, max_cost=config.max_cost, max_tool_calls=config.max_tool_calls)


def _history(config: OrchestrationConfig) -> HistoryPolicy:
    return HistoryPolicy(messages=config.history_messages, bytes=config.history_bytes)


def _no_engine(name: str, known: list[str]) -> RunFailedError:
    if name:
        text = f"there is no engine {name[:64]!r} in fumehood.toml: it has {', '.join(known) or 'none'}"
    elif known:
        text = "no engine is the default: name one in the request, or in fumehood.toml as `engine` of [orchestration]"
    else:
        text = "no engine is configured: add an [[engine]] to fumehood.toml"
    return failed(Code.CONFIG_NO_ENGINE, text)


def _recorded_response(handle: RunHandle, recorded: RecordedRun, window_s: float) -> SystemResponse | None:
    """What the run's caller got. None: it was interrupted, and goes on.

    Raises:
        RefusedError: the id is another run's, or it can't go on.
    """
    request_id = handle.request.request_id
    if recorded.request_hash != handle.digest or recorded_name(recorded.caller) != handle.request.caller.name:
        raise id_in_use(request_id)
    if recorded.ended:
        if recorded.response is None:
            raise not_resumable(request_id, "has ended, and what it answered is not kept in the journal")
        return recorded.response
    if recorded.is_cut:
        raise not_resumable(request_id, "was interrupted, and its record is too long to go on from")
    if STEADY_CLOCK.now_us() - recorded.started_us > window_s * 1e6:
        raise not_resumable(
            request_id, "was interrupted so long ago that its calls might run twice ([journal] call_id_window_s)"
        )
    return None
