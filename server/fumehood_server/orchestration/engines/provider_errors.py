"""Maps what pydantic-ai, SDKs and transport raise to `EngineError`. Imported where an engine is configured alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    UnexpectedModelBehavior,
    UserError,
)

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import EngineError
from fumehood_server.orchestration.engines.exchange import Exchange
from fumehood_server.secrets import Redactor

MAX_EXCERPT_CHARS = 200
"""Of what a provider says of an error: enough to mend a request by."""
MAX_RETRY_AFTER_S = 3600.0
"""A longer wait is no retry of the same run."""

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 501, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_UNAVAILABLE = frozenset({401, 403, 404, 408, 409, 425, 429, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_CONTEXT = re.compile(
    r"context (length|window|size)|maximum context|exceeds? the (available|maximum|model's?) .{0,20}context"
    r"|exceed_context_size|prompt is too long|too many tokens|input is too long|reduce the length of the messages",
    re.IGNORECASE,
)
"""How vLLM, llama.cpp, Ollama and others say it, beyond what pydantic-ai knows."""
_UNPARSED = "does not match the expected"
"""llama.cpp answers HTTP 500 with it, or ends a stream so, where it can't parse what its model wrote. The next try
writes something else."""


def engine_error(name: str, error: Exception, exchange: Exchange, secret: str) -> EngineError:
    """What became of a request to the engine `name`. `secret` is its key's name, by which the key is redacted."""
    if exchange.fault is not None:
        return EngineError(
            Code.INFERENCE_MALFORMED_RESPONSE, f"the answer of the engine {name} was not read: {exchange.fault}"
        )
    if isinstance(error, ModelAPIError):
        return _api_error(name, error, exchange, secret)
    if isinstance(error, UserError):
        return EngineError(Code.INFERENCE_ENGINE_ERROR, f"the engine {name} can't be asked that: {str(error)[:200]}")
    if isinstance(error, UnexpectedModelBehavior):
        message = f"the engine {name} gave no answer that can be read"
        return EngineError(Code.INFERENCE_MALFORMED_RESPONSE, message, transient=True)
    # Whatever else libraries raise over an answer that is not as they expect it.
    message = f"the answer of the engine {name} can't be read: {type(error).__name__}"
    return EngineError(Code.INFERENCE_MALFORMED_RESPONSE, message, transient=True)


def _api_error(name: str, error: ModelAPIError, exchange: Exchange, secret: str) -> EngineError:
    said = _said(error.body)
    if isinstance(error, ModelContextWindowExceededError) or _exceeds_context(error, said):
        message = f"the messages are more than the context of the engine {name} holds"
        return EngineError(Code.INFERENCE_CONTEXT_EXCEEDED, message)
    if isinstance(error, ModelHTTPError):
        told = "" if isinstance(error, ModelAuthenticationError) else _excerpt(said, exchange, secret)
        return _http_error(name, error, said, told)
    if isinstance(error, ModelConnectionError):
        code, message = Code.INFERENCE_MODEL_UNAVAILABLE, f"the engine {name} can't be reached, or its connection broke"
    elif error.in_stream:
        told = _excerpt(said, exchange, secret)
        code = Code.INFERENCE_MALFORMED_RESPONSE if _UNPARSED in said else Code.INFERENCE_ENGINE_ERROR
        message = f"the engine {name} broke its answer off with an error{told}"
    else:
        code, message = Code.INFERENCE_MALFORMED_RESPONSE, f"the engine {name} gave no whole answer that can be read"
    return EngineError(code, message, transient=True)


def _http_error(name: str, error: ModelHTTPError, said: str, told: str) -> EngineError:
    status = error.status_code
    message = f"the engine {name} answered HTTP {status}{told}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and _UNPARSED in said:
        return EngineError(Code.INFERENCE_MALFORMED_RESPONSE, message, transient=True)
    code = Code.INFERENCE_MODEL_UNAVAILABLE if status in _UNAVAILABLE else Code.INFERENCE_ENGINE_ERROR
    transient = status in _TRANSIENT and not isinstance(error, ModelQuotaExceededError)
    after_s = error.retry_after if transient else None
    if after_s is not None and after_s > MAX_RETRY_AFTER_S:
        return EngineError(code, message)
    return EngineError(code, message, transient=transient, retry_after_s=after_s)


def _exceeds_context(error: ModelAPIError, said: str) -> bool:
    status = error.status_code if isinstance(error, ModelHTTPError) else 400
    return status in {400, 413, 422, 500} and _CONTEXT.search(said) is not None


def _said(body: object) -> str:
    """The provider's message, where it has the form that most have."""
    for _ in range(3):
        if not isinstance(body, Mapping):
            break
        body = body.get("error", body.get("message", body.get("detail")))
    return body[:4096] if isinstance(body, str) else ""


def _excerpt(said: str, exchange: Exchange, secret: str) -> str:
    if not said:
        return ""
    if exchange.key:
        redactor = Redactor()
        redactor.learn(secret, exchange.key.encode())
        said = redactor.text(said)
    shown = "".join(each if each.isprintable() else " " for each in said[:MAX_EXCERPT_CHARS])
    return f': "{shown}"'


__all__ = ["engine_error"]
