"""What the journal is told of each call: its start, its attempts, its end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from fumehood_sandbox import Receipt

from fumehood_server.calls.call import Call
from fumehood_server.calls.counted_start import commit_counted_start
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.receipt_documents import ReceiptDocuments
from fumehood_server.calls.record_events import (
    end_event,
    kept_of_arguments,
    kept_of_outcome,
    kept_of_values,
    limit_reached,
    unrecorded,
)
from fumehood_server.calls.steps.approval_errors import not_approved
from fumehood_server.calls.steps.quota import at_the_end
from fumehood_server.calls.steps.writable import not_run
from fumehood_server.errors import CallTakenError, JournalUnavailableError
from fumehood_server.model.approvals import Approval, ApprovalRefusedError
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.events import (
    About,
    CancelRequested,
    Document,
    ExecuteAttempt,
    ExecuteRetry,
    ExecuteStart,
    ExecuteValues,
    Fault,
)
from fumehood_server.model.journal import Journal
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.standing import StandingUse
from fumehood_server.model.standing_changes import ConfirmStanding
from fumehood_server.model.tool import Payloads, safe_to_repeat
from fumehood_server.model.worker import CancelReason
from fumehood_server.secrets import Redactor
from fumehood_server.secrets.redactor import INLINE_CHARS

_VALUE_CHARS = 128
"""That a recorded value counts as beside its texts: an empty one takes over a microsecond."""
MAX_VALUE_BYTES = 1024 * 1024
"""What a call takes from outside is kept up to this size, so that it can be replayed."""
_Made = TypeVar("_Made")

RedactorOf = Callable[[str, Sequence[str]], Awaitable[Redactor]]
"""Given a plugin and the names of the secrets that it may read: takes their values as they are now out of text."""


class CallRecords:
    """Records calls. A call with effects is sent to no worker, and answered to nobody, before that is on disk."""

    __slots__ = ("_configuration", "_journal", "_large", "_payloads", "_receipts", "_redactor_of")

    def __init__(
        self,
        journal: Journal,
        configuration: Callable[[], str] = str,
        payloads: Payloads = Payloads.FULL,
        redactor_of: RedactorOf | None = None,
    ) -> None:
        """`configuration` gives the digest of the one in force. `payloads` holds for calls of tools that there are not.

        `redactor_of` gives what takes a plugin's secrets out of text.
        """
        self._journal = journal
        self._configuration = configuration
        self._payloads = payloads
        self._redactor_of = redactor_of
        self._receipts = ReceiptDocuments()
        self._large = ThreadPoolExecutor(1, thread_name_prefix="journal-payloads")
        """Large payloads are made one after the other, and everybody else has a turn between them."""

    def close(self) -> None:
        """No further call is recorded."""
        self._large.shutdown(wait=False)

    async def _made(self, size: int, make: Callable[..., _Made], *values: Any) -> _Made:  # noqa: ANN401 - as `make` has them
        if size <= INLINE_CHARS:  # and so without a pause, however much longer it is once it is encoded
            return make(*values, in_thread=False)
        made = functools.partial(make, *values, in_thread=True)
        return await asyncio.get_running_loop().run_in_executor(self._large, made)

    async def find_secrets(self, progress: Progress) -> None:
        """Have the values of what the tool's plugin may read at hand, to be taken out of what is recorded."""
        tool = progress.tool
        if tool is None or not tool.plugin_secrets or self._redactor_of is None:
            return
        if progress.redactor is None:
            progress.redactor = await self._redactor_of(tool.plugin, tool.plugin_secrets)

    async def start(
        self,
        call: Call,
        progress: Progress,
        *,
        required: bool = False,
        approved: Approval | StandingUse | None = None,
    ) -> None:
        """The call is admitted, and may come to run: see `_start`, which is followed by what hooks have said so far."""
        if self._journal.recording:
            await self._start(call, progress, required=required, approved=approved)
            self._hooks_decided(call, progress)

    async def _start(
        self, call: Call, progress: Progress, *, required: bool, approved: Approval | StandingUse | None
    ) -> None:
        """Once for each call, after `find_secrets`.

        Where other sidecars record there too, it returns once the call has its id for itself; one of a tool with
        effects has that with its attempt. `approved`: the approval that it uses, in the same transaction, as what it
        takes of quotas. `required`: whether it ends where nobody can say now whose the id is.

        Raises:
            CallTakenError: the id is that of another sidecar's call.
            NotBegunError: a quota has not as much left as it takes.
            StandingLostError: a standing approval can't be used any more.
            StepFailedError: nobody can say.
        """
        request, tool = call.request, progress.tool
        policy = self._payloads if tool is None else tool.payloads
        text = progress.arguments_json or request.arguments_json
        arguments_hash, arguments, kept = await self._made(len(text), kept_of_arguments, text, progress, policy)
        about = call.about = About(
            call_id=request.call_id,
            run_id=request.context.request_id,
            tool=request.tool,
            plugin="" if tool is None else tool.plugin,
            context=request.context.given(),
            charges=(*progress.charges,),
        )
        event = ExecuteStart(
            side_effects="" if tool is None else tool.definition.side_effects.name.lower(),
            arguments_hash="" if policy is Payloads.OFF else arguments_hash,
            arguments=arguments,
            plugin="" if tool is None or tool.spec is None else tool.spec.plugin_digest,
            definition="" if tool is None else tool.definition_digest,
            configuration=self._configuration(),
            caller=request.caller,
            authenticated_by=request.identity.authenticated_by.value,
            payloads=policy.value,
            asked_hash="" if policy is Payloads.OFF else progress.asked_hash,
            again_until_us=call.again_until_us() if request.again_after_crash else None,
        )
        if approved is not None or progress.charges:
            await commit_counted_start(self._journal, call, event, kept, approved)
            self.cancel_requested(call)
            return
        named = self._journal.shared and request.is_named  # an id of ours is nobody else's
        if named and (tool is None or safe_to_repeat(tool.definition.side_effects)):
            try:
                await self._journal.commit(event, about, kept)
            except CallTakenError:
                raise
            except JournalUnavailableError as exc:
                if required:
                    why = f"whether another sidecar has its call_id can't be read: {exc}"
                    raise StepFailedError(not_run(request.tool, why)) from exc
        else:
            self._journal.record(event, about, kept)
        self.cancel_requested(call)

    def _hooks_decided(self, call: Call, progress: Progress) -> None:
        for event, kept in progress.decided:
            self._journal.record(event, _about(call), kept)
        progress.decided.clear()

    def cancel_requested(self, call: Call) -> None:
        """Somebody has asked for the call's end. One whose start is not recorded yet is recorded with its start."""
        cancellation = call.cancellation
        if cancellation is None or not cancellation.by or call.about is None or call.is_abandoned:
            return
        if cancellation.reason is CancelReason.CALLER:
            self._journal.record(CancelRequested(by=cancellation.by, note=cancellation.note), call.about)

    async def attempt(self, call: Call, progress: Progress, worker_id: str, receipt: Receipt, *, retried: bool) -> None:
        """An attempt is about to be sent. Returns once that is on disk where the tool has effects.

        `retried`: whether another one may follow, so that each is recorded whatever the tool's level. The first of a
        call that a standing approval has let begin is recorded only while nobody has revoked that.

        Raises:
            StepFailedError: it can't be put there, so the attempt must not be sent; nor where it was revoked.
            CallTakenError: nor because it is another sidecar's.
        """
        if not self._journal.recording or progress.tool is None:
            return
        changes_nothing = safe_to_repeat(progress.tool.definition.side_effects)
        standing = ConfirmStanding(progress.standing_id) if progress.standing_id and not progress.attempts else None
        if changes_nothing and not retried and standing is None:
            return
        digest, documents = self._receipts.of(receipt, progress.tool)
        event = ExecuteAttempt(attempt=progress.attempts + 1, worker_id=worker_id, receipt=digest)
        if changes_nothing and standing is None:
            self._journal.record(event, _about(call), (), documents)
            return
        try:
            await self._journal.commit(event, _about(call), (), documents, standing=standing)
        except CallTakenError:
            raise
        except ApprovalRefusedError as exc:
            raise StepFailedError(not_approved(call.request.tool, progress.standing_id, exc.reason)) from exc
        except JournalUnavailableError as exc:
            why = f"the journal can't be written: {exc}"
            raise StepFailedError(not_run(call.request.tool, why)) from exc

    async def retry(self, call: Call, progress: Progress, error: CallError, delay_s: float) -> None:
        """An attempt failed, and another one follows after `delay_s`."""
        if not self._journal.recording:
            return
        await self._record_values(call, progress)
        if progress.redactor is not None:  # before it is cut: of a secret, the cut would leave a part
            error = replace(error, message=await progress.redactor.text_beside(error.message))
        fault = Fault.of(error, self._payloads if progress.tool is None else progress.tool.payloads)
        event = ExecuteRetry(
            attempt=progress.attempts,
            error=fault,
            outcome_unknown=progress.in_doubt is not None,
            worker_id=progress.worker_id,
            delay_us=round(delay_s * 1e6),
        )
        self._journal.record(event, _about(call))

    def max_value_bytes(self, tool: RegisteredTool) -> int:
        """Most bytes of what a call takes from outside that are recorded. 0: nothing is, and it can't be replayed."""
        return MAX_VALUE_BYTES if self._journal.recording and tool.payloads is Payloads.FULL else 0

    async def _record_values(self, call: Call, progress: Progress) -> None:
        result = progress.result
        values = None if result is None else result.values
        if result is None or values is None:
            return
        answers = {} if result.egress is None else result.egress.answers
        size = sum(_VALUE_CHARS + len(each.name + each.value_json + each.error_json) for each in values.values)
        digested, data, unseen = await self._made(size, kept_of_values, values, answers, progress.redactor)
        event = ExecuteValues(
            attempt=progress.attempts,
            count=len(values.values),
            left_out=values.left_out,
            values=digested,
            unconfirmed=unseen,
        )
        self._journal.record(event, _about(call), (data,))

    async def end(self, call: Call, progress: Progress, outcome: CallOutcome) -> CallOutcome:
        """The call has its outcome. Returns what its caller is told: that one, once it is on disk where it must be.

        Raises:
            CallTakenError: its id is that of another sidecar's call: it never began, or that one has gone on with it.
        """
        if not self._journal.recording:
            return outcome
        size = len(outcome.details_json) + sum(block.length for block in outcome.content)
        size += 0 if outcome.error is None else len(outcome.error.message)
        if not self._journal.has_room(size):
            await self._journal.room(size)
        await self._start_if_none(call, progress)
        _about(call).charges = at_the_end(progress.charges, outcome)
        documents: tuple[Document, ...] = ()
        receipt = ""
        if outcome.receipt is not None:
            receipt, documents = self._receipts.of(outcome.receipt, progress.tool)
        await self._record_values(call, progress)
        self._hooks_decided(call, progress)
        tool = progress.tool
        policy = self._payloads if tool is None else tool.payloads
        fault, result, kept = await self._made(size, kept_of_outcome, progress, outcome, policy)
        limit = None if outcome.error is None else limit_reached(outcome.error)
        if limit is not None:
            self._journal.record(limit, _about(call))
        event = end_event(call, progress, outcome, error=fault, result=result, receipt=receipt)
        if not outcome.attempts or (tool is not None and safe_to_repeat(tool.definition.side_effects)):
            self._journal.record(event, _about(call), kept, documents)
            return outcome
        try:
            await self._journal.commit(event, _about(call), kept, documents)
        except CallTakenError:
            raise
        except JournalUnavailableError as exc:
            return unrecorded(outcome, str(exc))
        return outcome

    async def _start_if_none(self, call: Call, progress: Progress) -> None:
        """Have the start recorded of a call that ended before it was."""
        if call.about is None:
            await self.find_secrets(progress)
            progress.charges = ()
            await self.start(call, progress)


def _about(call: Call) -> About:
    if call.about is None:
        raise AssertionError("a call's start is recorded before the rest")
    return call.about
