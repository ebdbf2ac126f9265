"""The inferences of one run: each is asked of its engine, tried again where that may help, recorded and counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fumehood_server.calls.steps.quota import exceeded_error
from fumehood_server.model.call import CallError
from fumehood_server.model.quotas import Charge, QuotaExceededError, Quotas
from fumehood_server.orchestration.engines.engine import Engine, EngineError, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.engines.retrying import delay_before_retry
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.happenings import HappeningLog, InferenceFinished, InferenceStarted, TextPiece
from fumehood_server.orchestration.recording import RunRecords
from fumehood_server.orchestration.request import SystemRequest
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


class Inferences:
    """For one event loop."""

    def __init__(
        self,
        run: SystemRequest,
        engine: Engine,
        *,
        quotas: Quotas,
        records: RunRecords,
        log: HappeningLog,
        observer: RunObserver | None,
        deadline: float,
    ) -> None:
        """`deadline` is the run's, on the clock of `time.monotonic`."""
        self._run = run
        self._engine = engine
        self._quotas = quotas
        self._records = records
        self._log = log
        self._observer = observer
        self._deadline = deadline

    async def ask(self, asked: Asked) -> InferenceAnswer:
        """The engine's answer, which is on record when this returns.

        Raises:
            RunFailedError: there is none, or a quota has nothing left for it.
            JournalUnavailableError: it can't be recorded.
        """
        engine, records, log, name = self._engine, self._records, self._log, asked.name
        attempt = 0
        while True:
            attempt += 1
            started_at = time.monotonic()
            charges = await self._begin(asked, attempt)
            log.put(InferenceStarted(name, engine.name, attempt))
            try:
                answer = await engine.infer(asked.request, lambda text: log.put(TextPiece(name, text)))
            except EngineError as exc:
                wait_s = delay_before_retry(exc, attempt, self._deadline) if attempt < engine.attempts else None
                error = CallError(
                    code=exc.code, message=str(exc), retryable=exc.transient, details={"engine": engine.name}
                )
                records.inference_failed(name, attempt, asked.input_hash, error, started_at, is_last=wait_s is None)
                self._observe(started_at, code=exc.code.value)
                log.put(InferenceFinished(name, "error", TokenUsage(), error, retried=wait_s is not None))
                if wait_s is None:
                    raise RunFailedError(error) from exc
                await asyncio.sleep(wait_s)
            else:
                await records.inference_answered(name, attempt, asked.input_hash, answer, started_at, charges=charges)
                log.put(InferenceFinished(name, answer.finish_reason.value, answer.usage))
                self._observe(started_at, answer)
                return answer

    async def _begin(self, asked: Asked, attempt: int) -> Sequence[Charge]:
        """Record its start, where quotas have something left for it. Returns what it takes of them."""
        run, engine, records = self._run, self._engine.name, self._records
        charges = self._quotas.of_inference(engine, run.caller.name, run.session_id)
        event = records.inference_start(
            asked.name, attempt, engine, asked.request, asked.input_hash, follows=asked.follows
        )
        if not charges:
            records.inference_started(event)
            return charges
        try:
            await records.counted_inference_started(event, charges)
        except QuotaExceededError as exc:
            error = exceeded_error(f"engine {engine} was not asked", exc.exceeded)
            records.quota_refused(exc.exceeded)
            records.inference_failed(asked.name, attempt, asked.input_hash, error, time.monotonic(), is_last=True)
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
        self._observer.inference_ended(end, trace=self._run.trace, session_id=self._run.session_id)
