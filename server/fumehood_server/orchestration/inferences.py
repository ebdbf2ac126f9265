"""The inferences of one run, or of one call: each is asked of its engine, tried again, recorded and counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fumehood_server.calls.steps.quota import exceeded_error
from fumehood_server.model.call import CallError
from fumehood_server.model.quotas import Charge, QuotaExceededError, Quotas
from fumehood_server.model.trace import TraceContext
from fumehood_server.orchestration.engines.engine import Engine, EngineError, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.engines.retrying import delay_before_retry
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.happenings import Happening, InferenceFinished, InferenceStarted, TextPiece
from fumehood_server.orchestration.inference_records import InferenceRecords
from fumehood_server.orchestration.response import TokenUsage
from fumehood_server.telemetry import InferenceEnd, RunObserver

_MAX_MODEL_CHARS = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """One inference."""

    name: str
    """Of its own within the run."""
    request: InferenceRequest
    input_hash: str
    follows: str
    """The inference whose answer has led to this one. Empty: none has."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose inferences they are."""

    caller: str
    """Name."""
    session_id: str
    trace: TraceContext | None


class Inferences:
    """For one event loop."""

    def __init__(
        self,
        origin: Origin,
        engine: Engine,
        *,
        quotas: Quotas,
        records: InferenceRecords,
        tell: Callable[[Happening], None],
        observer: RunObserver | None,
        deadline: float,
    ) -> None:
        """`tell` is told of what happens. `deadline` is on the clock of `time.monotonic`."""
        self._origin = origin
        self._engine = engine
        self._quotas = quotas
        self._records = records
        self._tell = tell
        self._observer = observer
        self._deadline = deadline

    async def ask(self, asked: Asked) -> InferenceAnswer:
        """The engine's answer, which is on record when this returns.

        Raises:
            RunFailedError: there is none, or a quota has nothing left for it.
            JournalUnavailableError: it can't be recorded.
        """
        engine, records, tell, name = self._engine, self._records, self._tell, asked.name
        attempt = 0
        while True:
            attempt += 1
            started_at = time.monotonic()
            charges = await self._begin(asked, attempt)
            tell(InferenceStarted(name, engine.name, attempt))
            try:
                answer = await engine.infer(asked.request, lambda text: tell(TextPiece(name, text)))
            except EngineError as exc:
                wait_s = delay_before_retry(exc, attempt, self._deadline) if attempt < engine.attempts else None
                error = CallError(
                    code=exc.code, message=str(exc), retryable=exc.transient, details={"engine": engine.name}
                )
                records.failed(name, attempt, asked.input_hash, error, started_at, is_last=wait_s is None)
                self._observe(started_at, code=exc.code.value)
                tell(InferenceFinished(name, "error", TokenUsage(), error, retried=wait_s is not None))
                if wait_s is None:
                    raise RunFailedError(error) from exc
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                records.cut_off(name, attempt, asked.input_hash, started_at, charges=charges)
                raise
            else:
                await records.answered(name, attempt, asked.input_hash, answer, started_at, charges=charges)
                tell(InferenceFinished(name, answer.finish_reason.value, answer.usage))
                self._observe(started_at, answer)
                return answer

    async def _begin(self, asked: Asked, attempt: int) -> Sequence[Charge]:
        """Record its start, where quotas have something left for it. Returns what it takes of them."""
        origin, engine, records = self._origin, self._engine.name, self._records
        charges = self._quotas.of_inference(engine, origin.caller, origin.session_id)
        event = records.start(asked.name, attempt, engine, asked.request, asked.input_hash, follows=asked.follows)
        if not charges:
            records.started(event)
            return charges
        try:
            await records.counted_started(event, charges)
        except QuotaExceededError as exc:
            error = exceeded_error(f"engine {engine} was not asked", exc.exceeded)
            records.quota_refused(exc.exceeded)
            records.failed(asked.name, attempt, asked.input_hash, error, time.monotonic(), is_last=True)
            raise RunFailedError(error) from exc
        return charges

    def _observe(self, started_at: float, answer: InferenceAnswer | None = None, *, code: str = "OK") -> None:
        """Have telemetry told of one try."""
        if self._observer is None:
            return
        end = InferenceEnd(engine=self._engine.name, code=code, took_s=time.monotonic() - started_at)
        if answer is not None:
            end = replace(
                end,
                response_model=answer.model[:_MAX_MODEL_CHARS],
                finish_reason=answer.finish_reason.value,
                input_tokens=answer.usage.input_tokens,
                output_tokens=answer.usage.output_tokens,
            )
        self._observer.inference_ended(end, trace=self._origin.trace, session_id=self._origin.session_id)
