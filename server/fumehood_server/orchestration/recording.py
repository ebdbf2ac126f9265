"""What the journal is told of one run, as it happens."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from fumehood_server.model.caller import Caller
from fumehood_server.model.events import About, Event, payload_of
from fumehood_server.model.journal import Journal
from fumehood_server.model.run_events import (
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
from fumehood_server.orchestration.answers import response_to_json
from fumehood_server.orchestration.inference_records import InferenceRecords
from fumehood_server.orchestration.lifecycle import Transition
from fumehood_server.orchestration.messages import Message, messages_to_json
from fumehood_server.orchestration.request import SystemRequest
from fumehood_server.orchestration.response import SystemResponse
from fumehood_server.orchestration.tool_offers import ToolOffer, tools_document

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
        self.inferences = InferenceRecords(journal, self._about, payloads, caller=request.caller.recorded)
        """Those of the run."""

    async def started(
        self, start_json: bytes, request_hash: str, engine: str, configuration: str, tools: Sequence[ToolOffer]
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

    async def ended(self, response: SystemResponse, said: Sequence[Message], wall_s: float, *, calls: int) -> None:
        """The run ended, which is on disk when this returns; and what it adds to its session.

        `calls`: how many it made, with those that the response doesn't list.

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
            tool_calls=calls,
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
