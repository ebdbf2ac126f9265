"""Admits calls and owns their tasks: the one way in for every servicer."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from fumehood_server.calls.approval_edits import Edit, edited
from fumehood_server.calls.call import Call, JoinedCall
from fumehood_server.calls.dependencies import CallDependencies
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.forks import Forks
from fumehood_server.calls.records import CallRecords, RedactorOf
from fumehood_server.calls.registry import Registry
from fumehood_server.calls.repeats import Repeats
from fumehood_server.calls.result_cache import ResultCache
from fumehood_server.calls.run import run_call
from fumehood_server.calls.steps.ask import AskParts
from fumehood_server.calls.steps.find import Tools
from fumehood_server.calls.steps.inputs import InputParts
from fumehood_server.calls.steps.intercept import DEFAULT_MAX_ARGUMENTS_BYTES, InterceptionParts
from fumehood_server.calls.steps.invoke import RELEASE_S
from fumehood_server.calls.steps.recall import check_repeats
from fumehood_server.calls.turns import Turns
from fumehood_server.errors import RefusedError
from fumehood_server.model.approvals import Approval, Approvals
from fumehood_server.model.call import CallOutcome, CallQuestion, CallRequest
from fumehood_server.model.caller import Caller, CallerRights, UnrestrictedRights
from fumehood_server.model.hooks import NO_HOOKS, Hooks
from fumehood_server.model.inferences import Models
from fumehood_server.model.journal import Journal
from fumehood_server.model.policy import NO_RULES, Policy
from fumehood_server.model.quotas import NO_QUOTAS, Quotas
from fumehood_server.model.retries import RetryConfig
from fumehood_server.model.tool import Payloads
from fumehood_server.model.worker import CancelReason, WorkerPools
from fumehood_server.telemetry import CallObserver, call_lines, get_logger
from fumehood_server.validation.documents import Document, Kind, Verdict


class Executor:
    """Gives each admitted call a task, and so exactly one outcome. An async context manager; for one event loop.

    Leaving the context cancels what is under way and waits for it.
    """

    def __init__(
        self,
        tools: Tools,
        pools: WorkerPools,
        *,
        journal: Journal,
        max_concurrent_calls: int,
        policy: Policy = NO_RULES,
        quotas: Quotas = NO_QUOTAS,
        approvals: Approvals | None = None,
        models: Models | None = None,
        release_s: float = RELEASE_S,
        journal_required: bool = True,
        configuration: Callable[[], str] = str,
        payloads: Payloads = Payloads.FULL,
        redactor_of: RedactorOf | None = None,
        observer: CallObserver | None = None,
        rights: CallerRights | None = None,
        retries: Callable[[], RetryConfig] = RetryConfig,
        hooks: Hooks = NO_HOOKS,
        max_arguments_bytes: int = DEFAULT_MAX_ARGUMENTS_BYTES,
    ) -> None:
        """`max_concurrent_calls` bounds the calls under way in the whole sidecar.

        `journal_required`: whether calls without effects are refused as well while the journal can't be written.
        `configuration`, `payloads`, `redactor_of`: see `CallRecords`.

        `models` answers what plugins ask of engines.

        `observer` is told of each call that has ended. `rights` are those of callers; None: each may do everything.
        `retries` gives what the operator has of attempts. `max_arguments_bytes` bounds what hooks may make of them.

        `release_s` bounds how long a call that is ended early waits for its worker.
        """
        self.max_calls_of_one = max(1, max_concurrent_calls // 2)
        """Most calls that one session should have under way, so that it leaves others a place."""
        self.repeats = Repeats()
        self._registry = Registry(max_concurrent_calls)
        self._tasks = asyncio.TaskGroup()
        checks = DocumentChecks(get_logger())
        self._needs = CallDependencies(
            tools=tools,
            policy=policy,
            quotas=quotas,
            approvals=approvals,
            pools=pools,
            inputs=InputParts(
                AskParts(journal=journal, approvals=approvals, policy=policy, thread=checks.thread), models
            ),
            checks=checks,
            turns=Turns(),
            repeats=self.repeats,
            release_s=release_s,
            log=get_logger(),
            lines=call_lines(),
            records=CallRecords(journal, configuration, payloads, redactor_of),
            rights=UnrestrictedRights() if rights is None else rights,
            journal=journal,
            journal_required=journal_required,
            forks=Forks(journal),
            retries=retries,
            cache=ResultCache(),
            hooks=hooks,
            interception=InterceptionParts(
                policy=policy,
                checks=checks,
                approvals=approvals is not None,
                recording=journal.recording,
                max_arguments_bytes=max_arguments_bytes,
            ),
            observer=observer,
        )

    async def __aenter__(self) -> Self:
        """Own the calls' tasks."""
        await self._needs.checks.__aenter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Cancel all calls and wait for them, which the waits of each bound."""
        self.close_admission()
        self.cancel_all(CancelReason.SHUTDOWN)
        try:
            # Not told of what ends the block: it would cancel tasks that have not begun, and so have no outcome.
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self._needs.checks.__aexit__(None, None, None)
            self._needs.records.close()

    def start(self, request: CallRequest) -> Call:
        """Admit a call and give it a task, which begins in the loop's next iteration.

        A call that repeats one under way, by its id, joins it: it gets that one's outcome, and can read its updates. It
        takes a place as any other does, until it has the outcome or is abandoned.

        Raises:
            RefusedError: it is not admitted.
        """
        if request.is_named:
            other = self._registry.find_call(request.call_id)
            if other is not None:
                check_repeats(request, other.request)
                self._registry.take_place(request)
                give_back = functools.partial(self._registry.give_back_place, request)
                return JoinedCall(request, other, self.repeats, give_back)
        call = Call(request)
        self._registry.add_call(call)
        call.runs_in(self._tasks.create_task(self._run(call)))
        return call

    async def _run(self, call: Call) -> CallOutcome | RefusedError:
        try:
            return await run_call(call, self._needs)
        except RefusedError as exc:  # raised by `outcome`; here it would end the group
            return exc
        finally:
            self._registry.remove_call(call)

    async def edit(self, approval: Approval, arguments_json: str) -> Edit:
        """See `edited`. Raises ApprovalRefusedError."""
        needs = self._needs
        return await edited(approval, arguments_json, needs.tools, needs.policy, needs.checks)

    def find(self, call_id: str) -> Call | None:
        """The call of this id that is under way."""
        return self._registry.find_call(call_id)

    async def check_answer(self, question: CallQuestion, content_json: str, caller: Caller) -> Verdict:
        """What is wrong with what was filled in, or how it is handed on. Raises NoVerdictError."""
        digest = hashlib.sha256(question.schema_json.encode()).hexdigest()
        document = Document(Kind.ARGUMENTS, f"question {digest}", question.schema_json, content_json)
        found = self._needs.checks.check_now(document)
        if found is not None:
            return found
        return await self._needs.checks.check((*caller.turn_path, question.tool), document)

    def cancel(self, call_id: str, note: str = "", by: str = "") -> bool:
        """Cancel the call of this id on a caller's word. False: none is under way. `by` names who asks."""
        call = self._registry.find_call(call_id)
        if call is None:
            return False
        if call.cancellation is None:
            call.cancel(CancelReason.CALLER, note, by)
            self._needs.records.cancel_requested(call)
        return True

    def cancel_tools(self, tools: Collection[str], note: str, by: str) -> int:
        """Cancel the calls of these tools that are under way, on an operator's word. How many there were."""
        found = [call.request.call_id for call in self._registry.calls() if call.request.tool in tools]
        return sum(self.cancel(call_id, note, by) for call_id in found)

    def close_admission(self) -> None:
        """Refuse new calls from now on, and end those that wait for an approval: they have not begun."""
        self._registry.close()
        for call in self._registry.calls():
            if call.awaits_approval:
                call.cancel(CancelReason.SHUTDOWN)

    def cancel_all(self, reason: CancelReason) -> None:
        """End every call now."""
        for call in self._registry.calls():
            call.cancel(reason)

    async def idle(self) -> None:
        """Return once no call is under way."""
        await self._registry.idle()

    @property
    def calls_in_flight(self) -> int:
        """Number of calls under way."""
        return len(self._registry)
