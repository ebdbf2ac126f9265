"""What the journal is told of one run, as it happens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import orjson

from fumehood_server.model.call import CallError
from fumehood_server.model.caller import Caller
from fumehood_server.model.events import About, Event, payload_of
from fumehood_server.model.journal import Journal
from fumehood_server.model.quota_events import QuotaRefused
from fumehood_server.model.quotas import Charge, Counted, Exceeded
from fumehood_server.model.run_events import (
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSteered,
    RunSteeringTaken,
    RunToolRefused,
    SessionTurn,
)
from fumehood_server.model.tool import Payloads
from fumehood_server.orchestration.answers import answer_to_json, error_to_json, response_to_json, tools_document
from fumehood_server.orchestration.engines.engine import InferenceAnswer, InferenceRequest, OfferedTool
from fumehood_server.orchestration.lifecycle import Transition
from fumehood_server.orchestration.messages import Message, messages_to_json
from fumehood_server.orchestration.request import SystemRequest
from fumehood_server.orchestration.response import SystemResponse

_MAX_NAME_CHARS = 64
_CONTEXT = ("trace_id", "span_id", "parent_span_id", "caused_by")


class RunRecords:
    """Records one run. Events lie in the journal in the order of these calls, and before those of calls made later."""

    def __init__(self, journal: Journal, request: SystemRequest, payloads: Payloads) -> None:
        """`payloads`: what is kept of requests, answers and responses."""
        self._journal = journal
        self._request = request
        self._payloads = payloads
        context = {name: value for name in _CONTEXT if (value := getattr(request.context, name))}
        context["request_id"] = request.request_id
        if request.session_id:
            context["session_id"] = request.session_id
        self._about = About(run_id=request.request_id, context=context)

    async def started(
        self, start_json: bytes, request_hash: str, engine: str, configuration: str, tools: Sequence[OfferedTool]
    ) -> None:
        """The run is admitted. A kill can't take that back once this returns.

        Raises:
            JournalUnavailableError: it can't be recorded.
            CallTakenError: another sidecar of this journal has admitted it.
        """
        caller = self._request.caller
        digested, kept = payload_of(start_json, self._payloads)
        offered = tools_document(tools) if tools else None
        event = RunStarted(
            mode=self._request.mode.value,
            engine=engine,
            request_hash=request_hash,
            request=digested,
            tools="" if offered is None else offered.digest.hex(),
            caller=caller.recorded,
            authenticated_by=caller.authenticated_by.value,
            configuration=configuration,
        )
        documents = () if offered is None else (offered,)
        await self._journal.commit(event, self._about, kept, documents, lasting=False)

    async def resumed(self, inferences: int, from_sidecar: str) -> None:
        """It goes on after a crash of that sidecar.

        Raises:
            JournalUnavailableError: it can't be recorded.
            CallTakenError: that sidecar lives, or another one goes on with it.
        """
        event = RunResumed(inferences=inferences, from_sidecar=from_sidecar)
        await self._journal.commit(event, self._about, lasting=False)

    def transition(self, transition: Transition) -> None:
        """It went from one state to the next."""
        self._record(
            LifecycleTransition(
                from_state=transition.before.value,
                to_state=transition.after.value,
                attempt=transition.attempt,
                reason=transition.reason,
            )
        )

    def inference_start(
        self, name: str, attempt: int, engine: str, asked: InferenceRequest, input_hash: str, *, follows: str
    ) -> InferenceStart:
        """The event that an engine is asked."""
        return InferenceStart(
            name=name,
            attempt=attempt,
            engine=engine,
            input_hash=input_hash,
            message_count=len(asked.messages),
            tool_defs_count=len(asked.tools),
            schema_present=asked.schema is not None,
            grammar_present=bool(asked.grammar),
            temperature=asked.hints.temperature,
            follows=follows,
        )

    def inference_started(self, event: InferenceStart) -> None:
        """An engine is asked, which no quota counts."""
        self._record(event)

    async def counted_inference_started(self, event: InferenceStart, charges: Sequence[Charge]) -> None:
        """An engine is asked, which quotas have something left for. A kill can't take back what that takes of them.

        Raises:
            QuotaExceededError: one has not.
            JournalUnavailableError: it can't be recorded.
        """
        await self._journal.commit(event, replace(self._about, charges=tuple(charges)), lasting=False)

    def quota_refused(self, exceeded: Exceeded) -> None:
        """A quota has nothing left for an inference."""
        self._record(QuotaRefused.of(exceeded, call_id="", caller=self._request.caller.recorded))

    async def inference_answered(
        self,
        name: str,
        attempt: int,
        input_hash: str,
        answer: InferenceAnswer,
        started_at: float,
        *,
        charges: Sequence[Charge],
    ) -> None:
        """It has answered. A kill can't take that back once this returns: nobody pays for an answer twice.

        `charges`: those of its start, of which what it has used is counted.

        Raises:
            JournalUnavailableError: it can't be recorded.
        """
        digested, kept = payload_of(answer_to_json(answer), self._payloads)
        event = InferenceEnd(
            name=name,
            attempt=attempt,
            input_hash=input_hash,
            duration_us=_since_us(started_at),
            tokens_in=answer.usage.input_tokens,
            tokens_out=answer.usage.output_tokens,
            cost=answer.usage.cost,
            finish_reason=answer.finish_reason.value,
            tool_call_count=len(answer.message.tool_uses),
            error_code="",
            is_last=True,
            model=answer.model[:256],
            answer=digested,
        )
        if self._journal.recording:
            about = replace(self._about, charges=_used(charges, answer)) if charges else self._about
            await self._journal.commit(event, about, kept, lasting=False)

    def inference_failed(
        self, name: str, attempt: int, input_hash: str, error: CallError, started_at: float, *, is_last: bool
    ) -> None:
        """It failed."""
        digested, kept = payload_of(orjson.dumps(error_to_json(error)), self._payloads)
        event = InferenceEnd(
            name=name,
            attempt=attempt,
            input_hash=input_hash,
            duration_us=_since_us(started_at),
            tokens_in=0,
            tokens_out=0,
            cost=0.0,
            finish_reason="error",
            tool_call_count=0,
            error_code=error.code.value,
            is_last=is_last,
            model="",
            answer=digested,
        )
        self._record(event, kept)

    def tool_refused(self, inference: str, index: int, tool: str, reason: str) -> None:
        """A model asked for a tool that it may not call."""
        self._record(RunToolRefused(inference=inference, index=index, tool=tool[:_MAX_NAME_CHARS], reason=reason))

    async def steered(self, number: int, kind: str, messages: Sequence[Message], by: Caller) -> None:
        """It was given further messages, which are on disk when this returns.

        Raises:
            JournalUnavailableError: they can't be recorded.
        """
        digested, kept = payload_of(orjson.dumps(messages_to_json(messages)), self._payloads)
        event = RunSteered(
            number=number,
            kind=kind,
            messages=digested,
            caller=by.recorded,
            authenticated_by=by.authenticated_by.value,
        )
        await self._journal.commit(event, self._about, kept)

    def steering_taken(self, name: str, numbers: Sequence[int]) -> None:
        """An inference is told of them."""
        self._record(RunSteeringTaken(name=name, numbers=tuple(numbers)))

    async def ended(self, response: SystemResponse, said: Sequence[Message], wall_s: float) -> None:
        """The run ended, which is on disk when this returns; and what it adds to its session.

        Raises:
            JournalUnavailableError: it can't be recorded.
            CallTakenError: this sidecar was taken for dead, and another one has gone on with it.
        """
        if self._request.session_id and said:
            self._record_turn(said)
        digested, kept = payload_of(response_to_json(response), self._payloads)
        usage = response.usage
        event = RunEnded(
            state=response.state,
            error_code="" if response.error is None else response.error.code.value,
            inferences=usage.inferences,
            tool_calls=len(response.tool_calls_made),
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            cost=usage.cost,
            wall_us=round(wall_s * 1e6),
            response=digested,
        )
        await self._journal.commit(event, self._about, kept)

    def _record_turn(self, said: Sequence[Message]) -> None:
        digested, kept = payload_of(orjson.dumps(messages_to_json(said)), self._payloads)
        event = SessionTurn(run=self._request.request_id, caller=self._request.caller.recorded, messages=digested)
        self._journal.record(event, About(run_id=self._request.session_id, context=self._about.context), kept)

    def _record(self, event: Event, payloads: tuple[bytes, ...] = ()) -> None:
        if self._journal.recording:
            self._journal.record(event, self._about, payloads)


def _used(charges: Sequence[Charge], answer: InferenceAnswer) -> tuple[Charge, ...]:
    """What an answer has taken that was not known before. Prices are floats: a billionth is exact enough."""
    usage = answer.usage
    amounts = {
        Counted.TOKENS: Decimal(usage.input_tokens + usage.output_tokens),
        Counted.COST: Decimal(f"{usage.cost:.9f}"),
    }
    return tuple(replace(each, amount=amounts[each.counts]) for each in charges if each.counts in amounts)


def _since_us(started_at: float) -> int:
    return round((time.monotonic() - started_at) * 1e6)
