"""An engine over pydantic-ai's model layer: one streamed request, bounded in time, size and number.

Imported where an engine is configured alone, by the thread that it works on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, ToolCallPart
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from fumehood_server.config.engines import Constraint, EngineConfig, GrammarDialect
from fumehood_server.model.json_counts import too_much_of
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.conversion import (
    ArgumentReader,
    encodable,
    to_message,
    to_model_messages,
    to_tool_definitions,
)
from fumehood_server.orchestration.engines.engine import (
    CHARS_A_TOKEN,
    MAX_TOOL_USES,
    EngineError,
    FinishReason,
    InferenceAnswer,
    InferenceRequest,
)
from fumehood_server.orchestration.engines.exchange import EXCHANGE, Exchange
from fumehood_server.orchestration.engines.provider_errors import engine_error
from fumehood_server.orchestration.engines.provider_models import make_model
from fumehood_server.orchestration.engines.transport import new_client
from fumehood_server.orchestration.engines.vendor_options import refused_vendor_option
from fumehood_server.orchestration.response import TokenUsage
from fumehood_server.secrets import SecretStore, SecretUnavailableError

if TYPE_CHECKING:
    from types import TracebackType

EVENTS_AT_ONCE = 16
"""Pieces of an answer that are read before others get their turn: what comes in one read of a socket is hundreds."""
_MOST_TOKENS = 2**40
_MAX_MODEL_CHARS = 256

_FINISH = {
    "stop": FinishReason.STOP,
    "tool_call": FinishReason.TOOL,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
}


class ModelEngine:
    """An `Engine` of one `[[engine]]`. To be used within `async with`, which closes its connections."""

    def __init__(self, config: EngineConfig, secrets: SecretStore) -> None:
        """Import what it takes, a second or more, and open nothing yet."""
        self._config = config
        self._secrets = secrets
        self._client = new_client(config)
        self._model = make_model(config, self._client)
        self._arguments = ArgumentReader()
        self._places = asyncio.Semaphore(config.max_concurrent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    @property
    def name(self) -> str:
        """As the operator named it."""
        return self._config.name

    @property
    def attempts(self) -> int:
        """Most tries of one inference, the first included."""
        return self._config.attempts

    @property
    def constrains_schema(self) -> bool:
        """Whether its decoding keeps to a schema."""
        return Constraint.SCHEMA in self._config.constrains

    @property
    def constrains_grammar(self) -> bool:
        """Whether its decoding keeps to a grammar."""
        return Constraint.GRAMMAR in self._config.constrains

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:
        """See `Engine`. A schema or a grammar that it can't constrain by is not sent. `on_text` must not raise."""
        refused = refused_vendor_option(request.hints.vendor_options)
        if refused:
            raise EngineError(Code.INFERENCE_ENGINE_ERROR, refused)
        limit_s = self._config.timeout_s
        try:
            async with asyncio.timeout(limit_s), self._places:
                return await self._ask(request, on_text)
        except TimeoutError as error:
            message = f"the engine {self.name} had not answered after {limit_s:g} s"
            raise EngineError(Code.INFERENCE_MODEL_UNAVAILABLE, message, transient=True) from error

    async def _ask(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:
        exchange = Exchange(key=await self._key())
        token = EXCHANGE.set(exchange)
        try:
            parameters = self._parameters(request)
            unreadable = await self._arguments.unreadable(request.messages)
            conversation = to_model_messages(request.messages, unreadable)
            messages = self._model.prepare_messages(conversation, parameters)
            async with self._model.request_stream(messages, self._settings(request), parameters) as stream:
                await _read(stream, on_text)
                return self._answer(request, stream)
        except EngineError:
            raise
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and the libraries fail over it in any way
            # Without its cause, which holds what the provider said.
            raise engine_error(self.name, error, exchange, self._config.secret) from None
        finally:
            EXCHANGE.reset(token)

    async def _key(self) -> str:
        if not self._config.secret:
            return ""
        try:
            value = await self._secrets.read_secret(self._config.secret)
        except SecretUnavailableError as error:
            message = f"the engine {self.name} has no key: {error.problem}"
            raise EngineError(Code.INFERENCE_MODEL_UNAVAILABLE, message) from error
        try:
            key = value.decode("ascii")
        except UnicodeDecodeError:
            key = ""
        if not key.isprintable() or not key or " " in key:
            message = (
                f"the secret {self._config.secret} can't be the key of the engine {self.name}: it is no ASCII word"
            )
            raise EngineError(Code.INFERENCE_MODEL_UNAVAILABLE, message)
        return key

    def _parameters(self, request: InferenceRequest) -> ModelRequestParameters:
        tools = to_tool_definitions(request.tools)
        if request.schema is None or not self.constrains_schema:
            return ModelRequestParameters(function_tools=tools)
        schema = OutputObjectDefinition(json_schema=dict(request.schema), name="output")
        return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=schema)

    def _settings(self, request: InferenceRequest) -> ModelSettings:
        hints, config = request.hints, self._config
        extra: dict[str, Any] = dict(hints.vendor_options)
        if request.grammar and self.constrains_grammar:
            if config.grammar_dialect is GrammarDialect.LLAMA_CPP:
                extra["grammar"] = request.grammar
            else:
                extra["structured_outputs"] = {"grammar": request.grammar}
        settings = ModelSettings()
        max_tokens = config.max_tokens if hints.max_tokens is None else hints.max_tokens
        if max_tokens is not None:
            settings["max_tokens"] = max_tokens
        temperature = config.temperature if hints.temperature is None else hints.temperature
        if temperature is not None:
            settings["temperature"] = temperature
        top_p = config.top_p if hints.top_p is None else hints.top_p
        if top_p is not None:
            settings["top_p"] = top_p
        if extra:
            settings["extra_body"] = extra
        return settings

    def _answer(self, request: InferenceRequest, stream: StreamedResponse) -> InferenceAnswer:
        response = stream.get()
        finish = response.finish_reason
        if finish not in _FINISH:
            problem = f"the engine {self.name} ended its answer without a reason, or with an error"
            raise EngineError(Code.INFERENCE_MALFORMED_RESPONSE, problem, transient=True)
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        refusal = (response.provider_details or {}).get("refusal")
        if not text and isinstance(refusal, str):
            text = refusal
        reason = _FINISH[finish]
        if reason in {FinishReason.STOP, FinishReason.TOOL}:  # servers differ in what they call an answer with calls
            reason = FinishReason.TOOL if calls else FinishReason.STOP
        message = to_message(text, calls, request.messages)
        for use in message.tool_uses:
            held = too_much_of(use.arguments_json.encode())
            if held:
                problem = f"the engine {self.name} asked for a call with arguments of {held}"
                raise EngineError(Code.INFERENCE_MALFORMED_RESPONSE, problem)
        return InferenceAnswer(
            message=message,
            finish_reason=reason,
            usage=self._usage(request, response.usage, message.size),
            model=encodable((response.model_name or "")[:_MAX_MODEL_CHARS]),
        )

    def _usage(self, request: InferenceRequest, usage: Any, said_chars: int) -> TokenUsage:  # noqa: ANN401 - RequestUsage
        given, written, cached = map(_tokens, (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens))
        if not given and not written:
            sent_chars = sum(each.size for each in request.messages) + sum(len(str(each)) for each in request.tools)
            given, written = (math.ceil(each / CHARS_A_TOKEN) for each in (sent_chars, said_chars))
        return TokenUsage(
            input_tokens=given,
            output_tokens=written,
            cached_input_tokens=min(cached, given),
            cost=self._config.cost(given, written),
            inferences=1,
        )


def _tokens(count: object) -> int:
    """What a provider counted, which may be anything."""
    return int(max(0, min(count, _MOST_TOKENS))) if isinstance(count, int | float) else 0


async def _read(stream: StreamedResponse, on_text: Callable[[str], None]) -> None:
    """Take the answer as it comes, and tell of its text."""
    calls = 0
    async with aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # an asynchronous generator
        seen = 0
        async for event in events:
            seen += 1
            if seen % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            text = ""
            if isinstance(event, PartStartEvent):
                calls += isinstance(event.part, ToolCallPart)
                text = event.part.content if isinstance(event.part, TextPart) else ""
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            if calls > MAX_TOOL_USES:
                message = f"the engine asked for more than {MAX_TOOL_USES} calls of tools at once"
                raise EngineError(Code.INFERENCE_MALFORMED_RESPONSE, message)
            if text:
                on_text(encodable(text))


__all__ = ["ModelEngine"]
