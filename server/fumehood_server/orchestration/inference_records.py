"""What the journal is told of the inferences of one run, or of one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

import orjson

from fumehood_server.model.call import CallError
from fumehood_server.model.events import About, Event, payload_of
from fumehood_server.model.journal import Journal
from fumehood_server.model.quota_events import QuotaRefused
from fumehood_server.model.quotas import Charge, Counted, Exceeded
from fumehood_server.model.run_events import InferenceEnd, InferenceStart
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads
from fumehood_server.orchestration.answers import answer_to_json, error_to_json
from fumehood_server.orchestration.engines.engine import InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.response import TokenUsage


class InferenceRecords:
    """Records inferences, in the order of these calls."""

    def __init__(
        self,
        journal: Journal,
        about: About,
        payloads: Payloads,
        *,
        caller: str,
        start: Callable[..., InferenceStart] = InferenceStart,
        end: Callable[..., InferenceEnd] = InferenceEnd,
        asked: tuple[bytes, ...] = (),
        cut_off: TokenUsage | None = None,
    ) -> None:
        """`payloads`: what is kept of answers. `caller`: who asks, as the journal records it.

        `start` and `end` make the events. `asked` is put beside the first one. `cut_off` is what quotas count for one
        whose answer nobody waits for any more. None: those have no end, since their run may be taken up again.
        """
        self._journal = journal
        self._about = about
        self._payloads = payloads
        self._caller = caller
        self._start = start
        self._end = end
        self._asked = asked
        self._cut_off = cut_off

    def start(
        self, name: str, attempt: int, engine: str, asked: InferenceRequest, input_hash: str, *, follows: str
    ) -> InferenceStart:
        """The event that an engine is asked."""
        return self._start(
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

    def started(self, event: InferenceStart) -> None:
        """An engine is asked, which no quota counts."""
        self._record(event, self._asked)

    async def counted_started(self, event: InferenceStart, charges: Sequence[Charge]) -> None:
        """An engine is asked, which quotas have something left for. A kill can't take back what that takes of them.

        Raises:
            QuotaExceededError: one has not.
            JournalUnavailableError: it can't be recorded.
        """
        await self._journal.commit(event, replace(self._about, charges=tuple(charges)), self._asked, lasting=False)

    def quota_refused(self, exceeded: Exceeded) -> None:
        """A quota has nothing left for an inference."""
        self._record(QuotaRefused.of(exceeded, call_id="", caller=self._caller))

    async def answered(
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
        event = self._end(
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
            about = replace(self._about, charges=_used(charges, answer.usage)) if charges else self._about
            await self._journal.commit(event, about, kept, lasting=False)

    def cut_off(
        self, name: str, attempt: int, input_hash: str, started_at: float, *, charges: Sequence[Charge]
    ) -> None:
        """Nobody waits for its answer any more, for which the engine may have worked."""
        if self._cut_off is not None:
            error = CallError(code=Code.CANCELLED_SIGNAL, message="its call ended before the engine had answered")
            used = _used(charges, self._cut_off)
            self.failed(name, attempt, input_hash, error, started_at, is_last=True, charges=used)

    def failed(
        self,
        name: str,
        attempt: int,
        input_hash: str,
        error: CallError,
        started_at: float,
        *,
        is_last: bool,
        charges: Sequence[Charge] = (),
    ) -> None:
        """It failed. `charges`: what it has used all the same."""
        digested, kept = payload_of(orjson.dumps(error_to_json(error)), self._payloads)
        event = self._end(
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
        self._record(event, kept, charges)

    def _record(self, event: Event, payloads: tuple[bytes, ...] = (), charges: Sequence[Charge] = ()) -> None:
        if self._journal.recording:
            about = replace(self._about, charges=tuple(charges)) if charges else self._about
            self._journal.record(event, about, payloads)


def _used(charges: Sequence[Charge], usage: TokenUsage) -> tuple[Charge, ...]:
    """What was taken that was not known before. Prices are floats: a billionth is exact enough."""
    amounts = {
        Counted.TOKENS: Decimal(usage.input_tokens + usage.output_tokens),
        Counted.COST: Decimal(f"{usage.cost:.9f}"),
    }
    return tuple(replace(each, amount=amounts[each.counts]) for each in charges if each.counts in amounts)


def _since_us(started_at: float) -> int:
    return round((time.monotonic() - started_at) * 1e6)
