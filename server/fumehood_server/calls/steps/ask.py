"""The step within a call that has a person asked what its tool asks: the caller, or approvers for a mere yes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from dataclasses import dataclass, field

from fumehood_server.calls.call import Call
from fumehood_server.calls.paced_thread import PacedThread
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.round_robin import KeyPath
from fumehood_server.calls.steps.approve import subject_of
from fumehood_server.errors import JournalUnavailableError, PluginRequestError, RefusedError
from fumehood_server.model.approval_changes import Use
from fumehood_server.model.approval_events import ApprovalUsed
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, Approvals, ApprovalState, Asked, Choice
from fumehood_server.model.call import CallApproval
from fumehood_server.model.events import About, Digested, payload_of
from fumehood_server.model.journal import Journal
from fumehood_server.model.mcp_reading import McpReading
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Policy, Requirement
from fumehood_server.model.question_events import QuestionAnswered, QuestionAsked
from fumehood_server.model.questions import MAX_MESSAGE_BYTES, MAX_SCHEMA_BYTES, Answer, AnswerAction, Question
from fumehood_server.model.schema import SchemaError, canonical_json, check_schema
from fumehood_server.settling import to_its_end
from fumehood_server.validation.budget import INLINE

RULE = "question"
"""What an approval is asked for by that answers a question."""
_READINGS = frozenset(McpReading)
_ACTIONS = {ApprovalState.APPROVED: AnswerAction.ACCEPT, ApprovalState.DENIED: AnswerAction.DECLINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskParts:
    """What the step needs of the sidecar."""

    journal: Journal
    approvals: Approvals | None
    """None: none can be kept."""
    policy: Policy
    thread: PacedThread = field(default_factory=PacedThread)
    """Checks the schemas of questions."""


async def ask_person(
    call: Call, tool: RegisteredTool, progress: Progress, parts: AskParts, question: Question
) -> Answer:
    """What a person says. Cancelling it takes the question back.

    Raises:
        PluginRequestError: nobody can be asked.
    """
    with call.questions.waiting(question.name) as question_id:
        await _check(question, (*call.request.identity.turn_path, tool.name), _thread(call, parts))
        asked = _Asked(call=call, tool=tool, progress=progress, parts=parts, question=question, question_id=question_id)
        if call.request.takes_questions:
            return await asked.caller()
        if tool.definition.name in _READINGS:  # its caller has no stream in which to be told what it waits for
            raise asked.refused("nobody_to_ask", "nobody answers questions of a reading of resources and prompts")
        if not question.schema_json and parts.approvals is not None:
            return await asked.approvers(parts.approvals)
        raise asked.refused(
            "nobody_to_ask",
            "nobody answers questions of this call: its caller takes none (`takes_questions`)"
            + (", and approvers can't fill in a form" if question.schema_json else ""),
        )


def _thread(call: Call, parts: AskParts) -> PacedThread | None:
    return parts.thread if call.request.takes_questions else None


async def _check(question: Question, path: KeyPath, thread: PacedThread | None) -> None:
    """Its schema only where a caller will see it: else `thread` is None. `path` is whose turn it takes there.

    Raises:
        PluginRequestError: nobody is to be asked that.
    """
    if not question.message.strip():
        raise PluginRequestError("question_invalid", "the question has no message")
    for name, text, limit in (
        ("message", question.message, MAX_MESSAGE_BYTES),
        ("schema_json", question.schema_json, MAX_SCHEMA_BYTES),
    ):
        if len(text.encode(errors="surrogatepass")) > limit:
            raise PluginRequestError("question_invalid", f"the question's {name} is longer than {limit} bytes")
    if question.schema_json and thread is not None:
        most = INLINE.pattern_states  # a form for people needs few
        check = functools.partial(check_schema, question.schema_json, arguments=True, max_states=most)
        try:
            await thread.run(path, check)
        except SchemaError as exc:
            raise PluginRequestError("question_invalid", f"the question's schema {exc.problem}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One question, and what the journal is told of it."""

    call: Call
    tool: RegisteredTool
    progress: Progress
    parts: AskParts
    question: Question
    question_id: str

    def refused(self, reason: str, message: str) -> PluginRequestError:
        """Nobody is asked."""
        self._record_asked("", refused=reason)
        return PluginRequestError(reason, message)

    async def caller(self) -> Answer:
        """Whoever made the call."""
        self._record_asked("caller")
        answer = Answer(AnswerAction.CANCEL)
        try:
            answer = await self.call.questions.ask(self.question_id, self.tool.name, self.question)
        finally:
            self._record_answered(answer)
        return answer

    async def approvers(self, approvals: Approvals) -> Answer:
        """Whoever may approve calls of the tool. Cancelled, however often, it writes what it has begun to its end."""
        opening = asyncio.create_task(self._opened(approvals))
        try:
            approval = await self._decided(await to_its_end(opening), approvals)
        except (asyncio.CancelledError, JournalUnavailableError) as exc:  # the former: its call is over
            if opening.exception() is None:
                await to_its_end(asyncio.create_task(self._taken_back(opening.result(), approvals)))
            if isinstance(exc, JournalUnavailableError):
                raise PluginRequestError("approval_unavailable", f"the approval can't be read: {exc}") from exc
            raise
        return await to_its_end(asyncio.create_task(self._taken(approval, approvals)))

    async def _opened(self, approvals: Approvals) -> Approval:
        try:
            approval = await approvals.obtain(self._asked_for())
        except (ApprovalRefusedError, JournalUnavailableError, RefusedError) as exc:
            raise self.refused("approval_unavailable", f"no approver can be asked: {exc}") from exc
        self._record_asked("approvers", approval_id=approval.approval_id)
        self.call.updates.put(CallApproval(approval_id=approval.approval_id, tool=self.tool.name))
        return approval

    async def _decided(self, approval: Approval, approvals: Approvals) -> Approval:
        """As it stands once it is decided, or once the call has waited for people as long as it may."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.call.questions.left_s):
                while approval.state is ApprovalState.PENDING:
                    approval = await approvals.decided(approval, approvals.grants)
        return approval

    async def _taken(self, approval: Approval, approvals: Approvals) -> Answer:
        """What a decision stands for. An approval is used up in the transaction that records the answer."""
        if approval.state is ApprovalState.PENDING:
            return await self._taken_back(approval, approvals)
        last = approval.decisions[-1] if approval.decisions else None
        by = "" if last is None else last.by or last.connection
        answer = Answer(_ACTIONS.get(approval.state, AnswerAction.CANCEL), by=by)
        if approval.state is not ApprovalState.APPROVED:
            self._record_answered(answer)
            return answer
        used = ApprovalUsed(
            approval_id=approval.approval_id,
            digest=approval.digest,
            approvers=tuple(each.by for each in approval.decisions if each.choice is Choice.APPROVE),
        )
        use = Use(approval.approval_id, approval.call_id, approval.digest)
        try:
            await self.parts.journal.commit_approved(self._answered(answer, None), self._about, (), use, used)
        except ApprovalRefusedError as exc:
            self._record_answered(Answer(AnswerAction.CANCEL))
            raise PluginRequestError("approval_unavailable", f"the approval can't be used: {exc}") from exc
        except JournalUnavailableError as exc:  # it may be written yet, and another answer would contradict it
            raise PluginRequestError("approval_unavailable", f"the approval can't be used: {exc}") from exc
        approvals.used(approval)
        return answer

    async def _taken_back(self, approval: Approval, approvals: Approvals) -> Answer:
        """Nobody's answer is waited for any more."""
        answer = Answer(AnswerAction.CANCEL)
        self._record_answered(answer)
        with contextlib.suppress(ApprovalRefusedError, JournalUnavailableError):
            await approvals.withdraw(approval, "the call that asks has ended, or has waited as long as it may")
        return answer

    def _asked_for(self) -> Asked:
        request, tool = self.call.request, self.tool
        shown = self._redacted(canonical_json({"question": self.question.message}))
        digest = hashlib.sha256(shown.encode()).hexdigest()
        return Asked(
            call_id=f"{request.call_id}?{self.question_id}",  # which is nobody's call
            run_id=request.context.request_id,
            context=request.context.given(),
            plugin=tool.plugin,
            side_effects=tool.definition.side_effects.value,
            subject=subject_of(request, tool, digest, self.parts.policy.version),
            arguments_json=shown,
            payloads=tool.payloads,
            requirements=(Requirement(rule=RULE),),
            connection=request.identity.connection,
        )

    @property
    def _about(self) -> About:
        return self.call.about or About(plugin=self.tool.plugin)

    def _redacted(self, text: str) -> str:
        redactor = self.progress.redactor
        return text if redactor is None else redactor.text(text)

    def _record_asked(self, asked: str, *, approval_id: str = "", refused: str = "") -> None:
        if not self.parts.journal.recording:
            return
        question = {"message": self.question.message, "schema_json": self.question.schema_json}
        digested, kept = payload_of(self._redacted(canonical_json(question)).encode(), self.tool.payloads)
        event = QuestionAsked(
            question_id=self.question_id, asked=asked, approval_id=approval_id, question=digested, refused=refused
        )
        self.parts.journal.record(event, self._about, kept)

    def _record_answered(self, answer: Answer) -> None:
        if not self.parts.journal.recording:
            return
        digested: Digested | None = None
        kept: tuple[bytes, ...] = ()
        if answer.content_json:
            digested, kept = payload_of(self._redacted(answer.content_json).encode(), self.tool.payloads)
        self.parts.journal.record(self._answered(answer, digested), self._about, kept)

    def _answered(self, answer: Answer, digested: Digested | None) -> QuestionAnswered:
        return QuestionAnswered(question_id=self.question_id, action=answer.action.value, by=answer.by, answer=digested)
