"""Answers what calls' tools ask of models: by the engine that their plugin is granted, recorded and counted."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace

import orjson

from fumehood_server.config.engines import EngineConfig
from fumehood_server.errors import JournalUnavailableError, PluginRequestError
from fumehood_server.model.call import CallRequest
from fumehood_server.model.events import About, payload_of
from fumehood_server.model.inferences import (
    MAX_MESSAGES,
    MAX_STOP_SEQUENCES,
    MAX_TEXT_BYTES,
    AskedInference,
    GivenInference,
)
from fumehood_server.model.journal import Journal
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.quotas import Quotas
from fumehood_server.model.run_events import CallInferenceEnd, CallInferenceStart
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import CHARS_A_TOKEN, Engine, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.inference_records import InferenceRecords
from fumehood_server.orchestration.inferences import Asked, Inferences, Origin
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.request import Hints
from fumehood_server.orchestration.response import TokenUsage
from fumehood_server.telemetry import RunObserver


class CallInferences:
    """See `fumehood_server.model.inferences.Models`. Engines are there within `serving`."""

    def __init__(self, journal: Journal, quotas: Quotas) -> None:
        """No engine is there yet."""
        self._journal = journal
        self._quotas = quotas
        self._engines: Mapping[str, Engine] = {}
        self._configs: Mapping[str, EngineConfig] = {}
        self._observer: RunObserver | None = None

    @contextlib.contextmanager
    def serving(
        self, engines: Mapping[str, Engine], configs: Mapping[str, EngineConfig], observer: RunObserver | None
    ) -> Iterator[None]:
        """Answer by these within the block."""
        self._engines, self._configs, self._observer = engines, configs, observer
        try:
            yield
        finally:
            self._engines = {}

    async def infer(
        self,
        asked: AskedInference,
        number: int,
        *,
        call: CallRequest,
        tool: RegisteredTool,
        about: About | None,
        redact: Callable[[bytes], Awaitable[bytes]] | None,
    ) -> GivenInference:
        """See `Models`."""
        name = "" if tool.spec is None else tool.spec.engine
        engine = self._engines.get(name)
        if engine is None:
            raise PluginRequestError("engine_unavailable", f'there is no engine "{name}" any more')
        _check(asked)
        config = self._configs[name]
        most = config.max_tokens
        hints = Hints(
            max_tokens=asked.max_tokens if most is None else min(asked.max_tokens, most), temperature=asked.temperature
        )
        request = InferenceRequest(messages=_messages(asked), hints=hints)
        document = _document(asked)
        if redact is not None:
            document = await redact(document)
        digested, kept = payload_of(document, tool.payloads)
        records = InferenceRecords(
            self._journal,
            # Not what the call itself takes of quotas, and not counted among the events of whoever runs it.
            replace(about or About(plugin=tool.plugin), charges=(), numbered=False, number=0),
            tool.payloads,
            caller=call.caller,
            start=functools.partial(CallInferenceStart, request=digested),
            end=CallInferenceEnd,
            asked=kept,
            cut_off=_most_used(request, config),
        )
        inferences = Inferences(
            Origin(call.identity.name, call.context.session_id, call.trace),
            engine,
            quotas=self._quotas,
            records=records,
            tell=lambda _: None,
            observer=self._observer,
            deadline=time.monotonic() + tool.timeout_s,
        )
        try:
            answer = await inferences.ask(
                Asked(f"inference-{number}", request, hashlib.sha256(document).hexdigest(), "")
            )
        except RunFailedError as exc:
            error = exc.error
            if error.code is Code.TOOL_QUOTA_EXCEEDED:
                raise PluginRequestError("quota_exceeded", error.message) from exc
            raise PluginRequestError("inference_failed", error.message, retryable=error.retryable) from exc
        except JournalUnavailableError as exc:
            raise PluginRequestError("journal_unavailable", f"it can't be recorded: {exc}", retryable=True) from exc
        text, cut = _until_stop(answer.message.text, asked.stop_sequences)
        return GivenInference(
            text=text, model=answer.model, finish_reason="stop" if cut else answer.finish_reason.value
        )


def _check(asked: AskedInference) -> None:
    """Raises PluginRequestError: it is not to be asked."""
    if not 0 < len(asked.messages) <= MAX_MESSAGES:
        raise _invalid(f"it has {len(asked.messages)} messages, and 1 to {MAX_MESSAGES} are taken")
    if any(role not in _ROLES for role, _ in asked.messages):
        raise _invalid("a message has no role")
    if asked.temperature is not None and not math.isfinite(asked.temperature):
        raise _invalid("temperature is no number")
    if asked.max_tokens < 1:
        raise _invalid("max_tokens must be at least 1")
    if len(asked.stop_sequences) > MAX_STOP_SEQUENCES:
        raise _invalid(f"more than {MAX_STOP_SEQUENCES} stop sequences")
    texts = (asked.system_prompt, *(text for _, text in asked.messages), *asked.stop_sequences)
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_TEXT_BYTES:
        raise _invalid(f"its text has {size} bytes, and {MAX_TEXT_BYTES} are taken")


_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}


def _messages(asked: AskedInference) -> tuple[Message, ...]:
    system = (Message(role=Role.SYSTEM, text=asked.system_prompt),) if asked.system_prompt else ()
    return (*system, *(Message(role=_ROLES[role], text=text) for role, text in asked.messages))


def _most_used(request: InferenceRequest, config: EngineConfig) -> TokenUsage:
    """What an inference has used at most that is cut off: all that it was sent, and may have answered."""
    sent = math.ceil(sum(each.size for each in request.messages) / CHARS_A_TOKEN)
    written = request.hints.max_tokens or 0
    return TokenUsage(input_tokens=sent, output_tokens=written, cost=config.cost(sent, written), inferences=1)


def _document(asked: AskedInference) -> bytes:
    """All that was asked, as it is recorded and digested."""
    return orjson.dumps(
        {
            "messages": [{"role": role, "text": text} for role, text in asked.messages],
            "system_prompt": asked.system_prompt,
            "max_tokens": asked.max_tokens,
            "temperature": asked.temperature,
            "stop_sequences": asked.stop_sequences,
        },
        option=orjson.OPT_SORT_KEYS,
    )


def _until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The text before the first of the sequences: what they are told by is each provider's own."""
    ends = [end for each in stops if each and (end := text.find(each)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def _invalid(problem: str) -> PluginRequestError:
    return PluginRequestError("inference_invalid", problem)
