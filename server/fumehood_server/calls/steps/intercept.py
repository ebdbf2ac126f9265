"""The steps that ask hooks and middleware: before a call, until its arguments stand; and about its result."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.cancellation import after_dispatch
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.errors import EndedEarlyError, StepFailedError
from fumehood_server.calls.placeholders import placeholder_in
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps import hook_errors
from fumehood_server.calls.steps.check import Checked, check_result, output_size
from fumehood_server.calls.steps.permit import check_permission, decide
from fumehood_server.calls.steps.prepare import arguments_of, settled
from fumehood_server.calls.steps.validate import validate, validate_in_time
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.events import payload_of
from fumehood_server.model.hook_events import HookDecided
from fumehood_server.model.hooks import (
    Allow,
    Answered,
    ChangeArguments,
    ChangeResult,
    Deny,
    HookedCall,
    HookedResult,
    HookGoneError,
    HookKind,
    HookTurn,
    Stage,
    WhenGone,
)
from fumehood_server.model.outcome_json import outcome_to_json
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.policy import Policy, Verdict
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads
from fumehood_server.model.worker import InvocationResult
from fumehood_server.secrets import Redactor
from fumehood_server.secrets.redactor import INLINE_CHARS
from fumehood_server.validation.documents import Accepted

DEFAULT_MAX_ARGUMENTS_BYTES = 1024 * 1024
_SLACK_S = 60.0
"""Beyond the hook's own time, which ends first."""
_BY_THE_TOOL = frozenset({Code.TOOL_EXECUTION_FAILED, Code.CONSTRAINT_SCHEMA_INVALID, Code.CONSTRAINT_JSON_INVALID})
"""Failures that are the tool's answer. Of others there is none that could be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterceptionParts:
    """What the steps need of the sidecar."""

    policy: Policy
    checks: DocumentChecks
    approvals: bool
    """Whether an approval could be kept."""
    recording: bool
    max_arguments_bytes: int


def hooked_call(call: Call, tool: RegisteredTool) -> HookedCall:
    """What is told of the call."""
    request = call.request
    return HookedCall(
        call_id=request.call_id,
        tool=tool.name,
        plugin=tool.plugin,
        side_effects=tool.definition.side_effects.value,
        idempotent=tool.definition.idempotent,
        caller=request.identity,
        context=request.context,
    )


class Interception:
    """Those who are asked about one call. `close` it in any case."""

    def __init__(
        self, call: Call, tool: RegisteredTool, turns: Sequence[HookTurn], progress: Progress, parts: InterceptionParts
    ) -> None:
        """`turns` are asked in this order before the call, and the other way round after it."""
        self._call = call
        self._tool = tool
        self._turns = turns
        self._progress = progress
        self._parts = parts

    async def close(self) -> None:
        """Let go of what runs around the call."""
        for turn in reversed(self._turns):
            await turn.close()

    async def before(self, prepared: Accepted, verdict: Verdict) -> tuple[Accepted, Verdict]:
        """Ask each in turn. Returns what they leave of the arguments, validated, and what the rules say of that.

        Raises:
            StepFailedError: the call ends here.
            EndedEarlyError: it was cancelled or met a deadline.
        """
        for turn in self._turns:
            if Stage.BEFORE in turn.stages:
                prepared, verdict = await self._before(turn, prepared, verdict)
        self._call.ready_at = time.monotonic()
        return prepared, verdict

    async def _before(self, turn: HookTurn, prepared: Accepted, verdict: Verdict) -> tuple[Accepted, Verdict]:
        tool = self._tool
        shown = await self._shown_text(prepared.text)
        began = time.monotonic()
        try:
            answered = await self._ask(turn, lambda: turn.before(shown))
        except HookGoneError as gone:
            self._decided_before(turn, gone, began, prepared, shown)
            if turn.when_gone is WhenGone.ALLOW:
                return prepared, verdict
            raise StepFailedError(hook_errors.gone(turn, Stage.BEFORE, tool.name, gone.problem)) from gone
        answer = answered.answer
        if isinstance(answer, Allow):
            self._decided_before(turn, answered, began, prepared, shown)
            return prepared, verdict
        if isinstance(answer, Deny):
            self._decided_before(turn, answered, began, prepared, shown)
            raise StepFailedError(hook_errors.denied(turn, Stage.BEFORE, tool.name, answer.reason))
        changed = await self._prepared(answer, is_masked=shown != prepared.text)
        if isinstance(changed, CallError):
            self._decided_before(turn, answered, began, prepared, shown, choice="refused")
            raise StepFailedError(hook_errors.unusable(turn, Stage.BEFORE, tool.name, changed))
        self._decided_before(turn, answered, began, prepared, shown, left=changed)
        self._take(changed)
        verdict = await decide(
            self._parts.policy,
            tool,
            self._call.request.identity.name,
            changed.text,
            functools.partial(validate_in_time, self._call, tool, self._parts.checks),
        )
        error = check_permission(tool, verdict, approvals=self._parts.approvals)
        if error is not None:
            raise StepFailedError(hook_errors.not_permitted(turn, error))
        return changed, verdict

    async def _prepared(self, answer: ChangeArguments | ChangeResult, *, is_masked: bool) -> Accepted | CallError:
        """The arguments that a hook has put in place of others, as the tool would get them.

        `is_masked`: it was not shown all of them.
        """
        if not isinstance(answer, ChangeArguments):
            return hook_errors.out_of_place()
        text, most = answer.arguments_json, self._parts.max_arguments_bytes
        if len(text) > most or len(text.encode(errors="surrogatepass")) > most:
            return hook_errors.too_long("max_arguments_bytes", most)
        deadline = self._call.deadline(Bound.WAIT, time.monotonic(), max(MIN_WAIT_S, self._tool.timeout_s))
        document = arguments_of(self._tool, text, hashed=True)
        verdict = await validate(self._call, self._tool, document, self._parts.checks, deadline)
        changed = settled(self._tool, verdict)
        if is_masked and isinstance(changed, Accepted):
            masked = await placeholder_in(changed.text, self._tool.plugin_secrets)
            return hook_errors.masked(masked) if masked else changed
        return changed

    def _take(self, changed: Accepted) -> None:
        progress = self._progress
        progress.asked_hash = progress.asked_hash or progress.arguments_hash
        progress.arguments_json, progress.arguments_hash = changed.text, changed.canonical_sha256
        progress.coercions += changed.coercions

    async def after(self, spec: WorkerSpec, checked: Checked) -> Checked:
        """Ask each about the tool's answer, the last one first. Returns what they leave of it, or that it is withheld.

        Raises:
            StepFailedError: the call ends here, and the tool has run.
        """
        if checked.error is not None and checked.error.code not in _BY_THE_TOOL:
            return checked
        for turn in reversed(self._turns):
            if Stage.AFTER in turn.stages:
                checked = await self._after(turn, spec, checked)
        return checked

    async def _after(self, turn: HookTurn, spec: WorkerSpec, checked: Checked) -> Checked:
        tool = self._tool
        shown = await self._shown_result(checked)
        arguments = await self._shown_text(self._progress.arguments_json)
        began = time.monotonic()
        try:
            answered = await self._ask(turn, lambda: turn.after(arguments, shown))
        except HookGoneError as gone:
            await self._decided_after(turn, gone, began, shown)
            if turn.when_gone is WhenGone.ALLOW:
                return checked
            raise StepFailedError(hook_errors.gone(turn, Stage.AFTER, tool.name, gone.problem)) from gone
        except EndedEarlyError as exc:
            await self._decided_after(turn, None, began, shown)
            raise StepFailedError(after_dispatch(tool, exc.error, {"tool_finished": True})) from exc
        answer = answered.answer
        if isinstance(answer, Allow):
            await self._decided_after(turn, answered, began, shown)
            return checked
        if isinstance(answer, Deny):
            await self._decided_after(turn, answered, began, shown)
            raise StepFailedError(hook_errors.denied(turn, Stage.AFTER, tool.name, answer.reason))
        changed = await self._checked(spec, checked, answer)
        if isinstance(changed, CallError):
            await self._decided_after(turn, answered, began, shown, choice="refused")
            raise StepFailedError(hook_errors.unusable(turn, Stage.AFTER, tool.name, changed))
        await self._decided_after(turn, answered, began, shown, left=await self._shown_result(changed))
        return changed

    async def _checked(
        self, spec: WorkerSpec, checked: Checked, answer: ChangeArguments | ChangeResult
    ) -> Checked | CallError:
        """The result that a hook has put in place of another one, held against the tool's cap and output schema."""
        if not isinstance(answer, ChangeResult):
            return hook_errors.out_of_place()
        terminate = checked.terminate if answer.terminate is None else answer.terminate
        if answer.output is None:
            return replace(checked, terminate=terminate and checked.error is None)
        content, details_json = answer.output
        if checked.error is not None and details_json:
            return hook_errors.failure_with_output()
        result = InvocationResult(content, details_json, terminate, checked.error, output_bytes=sys.maxsize)
        if checked.error is not None and output_size(result) > spec.output_bytes:
            return hook_errors.too_long("output_bytes", spec.output_bytes)
        found = await check_result(self._call, self._tool, spec, result, self._parts.checks)
        return found if found.error is checked.error else (found.error or hook_errors.out_of_place())

    async def _ask(self, turn: HookTurn, ask: Callable[[], Awaitable[Answered]]) -> Answered:
        deadline = self._call.deadline(Bound.WAIT, time.monotonic(), turn.timeout_s + _SLACK_S)
        return await self._call.wait_for(ask, deadline)

    async def _shown_text(self, text: str) -> str:
        redactor = self._progress.redactor
        return text if redactor is None else await redactor.text_beside(text)

    async def _shown_result(self, checked: Checked) -> HookedResult:
        redactor = self._progress.redactor
        if redactor is None:
            return _as_shown(checked, None)
        size = len(checked.details_json) + sum(each.length for each in checked.content)
        return (
            _as_shown(checked, redactor)
            if size <= INLINE_CHARS
            else await asyncio.to_thread(_as_shown, checked, redactor, in_thread=True)
        )

    def _event(
        self, turn: HookTurn, stage: Stage, what: Answered | HookGoneError | None, began: float, choice: str
    ) -> HookDecided:
        event = _event(turn, stage, what, began, choice)
        if self._progress.redactor is not None:  # a hook may know secrets that it was not shown
            event.reason = self._progress.redactor.text(event.reason)
        return event

    def _decided_before(
        self,
        turn: HookTurn,
        what: Answered | HookGoneError,
        began: float,
        prepared: Accepted,
        shown: str,
        *,
        left: Accepted | None = None,
        choice: str = "",
    ) -> None:
        if not self._parts.recording or _goes_without_saying(turn, what):
            return
        event = self._event(turn, Stage.BEFORE, what, began, choice)
        kept: tuple[bytes, ...] = ()
        if self._tool.payloads is not Payloads.OFF:
            event.arguments_hash = prepared.canonical_sha256
            event.left_hash = "" if left is None else left.canonical_sha256
        if event.choice != "allow":
            event.seen, kept = payload_of(shown.encode(errors="surrogatepass"), self._tool.payloads)
        self._progress.decided.append((event, kept))

    async def _decided_after(
        self,
        turn: HookTurn,
        what: Answered | HookGoneError | None,
        began: float,
        shown: HookedResult,
        *,
        left: HookedResult | None = None,
        choice: str = "",
    ) -> None:
        if not self._parts.recording or _goes_without_saying(turn, what):
            return
        event = self._event(turn, Stage.AFTER, what, began, choice)
        kept: tuple[bytes, ...] = ()
        if event.choice != "allow":
            event.seen, kept = payload_of(await self._as_json(shown), self._tool.payloads)
        if left is not None and self._tool.payloads is not Payloads.OFF:
            event.left_hash = hashlib.sha256(await self._as_json(left)).hexdigest()
        self._progress.decided.append((event, kept))

    async def _as_json(self, result: HookedResult) -> bytes:
        """As `execute_end` has it."""
        outcome = CallOutcome(
            call_id="",
            tool="",
            content=result.content,
            details_json=result.details_json,
            terminate=result.terminate,
            error=result.error,
            coercions=self._progress.coercions,
        )
        size = len(result.details_json) + sum(each.length for each in result.content)
        return outcome_to_json(outcome) if size <= INLINE_CHARS else await asyncio.to_thread(outcome_to_json, outcome)


def _goes_without_saying(turn: HookTurn, what: Answered | HookGoneError | None) -> bool:
    """Of middleware that changes nothing there is no event: the configuration that the call's start names has it."""
    return turn.kind is HookKind.MIDDLEWARE and isinstance(what, Answered) and isinstance(what.answer, Allow)


def _event(
    turn: HookTurn, stage: Stage, what: Answered | HookGoneError | None, began: float, choice: str
) -> HookDecided:
    """Of an answer; of none; or of a call that ended while it was awaited."""
    event = HookDecided(
        hook=turn.name,
        kind=turn.kind.value,
        stage=stage.value,
        choice=choice or "gone",
        reason="call_ended",
        proceeds=False,
        at_us=STEADY_CLOCK.now_us(),
        wall_us=round((time.monotonic() - began) * 1e6),
    )
    by = None if what is None else what.by
    if by is not None:
        event.by, event.authenticated_by, event.connection = by.name, by.authenticated_by.value, by.connection
    if isinstance(what, HookGoneError):
        event.reason, event.proceeds = what.problem.value, turn.when_gone is WhenGone.ALLOW
    elif what is not None:
        answer = what.answer
        if not choice:
            event.choice = "allow" if isinstance(answer, Allow) else "deny" if isinstance(answer, Deny) else "change"
        event.reason = "" if isinstance(answer, Allow) else answer.reason
        event.proceeds = event.choice in {"allow", "change"}
    return event


def _as_shown(checked: Checked, redactor: Redactor | None, *, in_thread: bool = False) -> HookedResult:
    result = HookedResult(
        content=checked.content, details_json=checked.details_json, terminate=checked.terminate, error=checked.error
    )
    if redactor is None:
        return result
    text, data = redactor.text, redactor.data
    if in_thread:
        text, data = redactor.text_in_thread, redactor.data_in_thread
    content = tuple(_masked(each, text, data) for each in checked.content)
    error = checked.error
    if error is not None:
        error = replace(error, message=text(error.message), details={}, caused_by=None)
    return replace(result, content=content, details_json=text(checked.details_json), error=error)


def _masked(block: Block, text: Callable[[str], str], data: Callable[[bytes], bytes]) -> Block:
    said = block.annotations
    return replace(
        block,
        text=None if block.text is None else text(block.text),
        data=None if block.data is None else data(block.data),
        resource_uri=text(block.resource_uri),
        annotations=None if said is None else replace(said, last_modified=text(said.last_modified)),
    )
