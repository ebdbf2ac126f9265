"""Makes pydantic-ai's model of an engine, over an HTTP client of ours. Imported where an engine is configured alone."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import httpx2
from pydantic_ai.profiles.openai import OpenAIModelProfile

from fumehood_server.config.engines import Constraint, EngineConfig, Provider

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_UNUSED_KEY = "the-transport-has-it"
"""The SDKs look for keys in the environment where they are given none."""
_LOGGERS = ("openai", "anthropic", "httpx2", "httpcore2", "pydantic_ai")
_WARNING = r"(pydantic|pydantic_ai|genai_prices|openai|anthropic|httpx2)(\.|$)"
_NEVER = logging.CRITICAL + 1


def make_model(config: EngineConfig, client: httpx2.AsyncClient) -> Model:
    """The model, which neither retries, nor traces, nor logs. Its SDK is imported here, in a second or more."""
    # They are for those who write agents, and hold what a provider said where that isn't as it should be.
    warnings.filterwarnings("ignore", module=_WARNING)
    model = _anthropic(config, client) if config.provider is Provider.ANTHROPIC else _openai(config, client)
    for name in _LOGGERS:  # after the import, which sets levels by OPENAI_LOG and ANTHROPIC_LOG
        logging.getLogger(name).setLevel(_NEVER)
    return model


def _openai(config: EngineConfig, client: httpx2.AsyncClient) -> Model:
    from openai import AsyncOpenAI  # noqa: PLC0415 - imports a thousand modules
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - likewise
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

    sdk = AsyncOpenAI(
        api_key=_UNUSED_KEY, base_url=config.base_url, http_client=client, timeout=client.timeout, max_retries=0
    )
    profile = OpenAIModelProfile(
        # A stream that was cut and one that ended look alike but for this.
        openai_chat_streaming_requires_finish_reason=True,
        supports_json_schema_output=Constraint.SCHEMA in config.constrains,
    )
    if config.is_default_url:
        return OpenAIChatModel(config.model, provider=OpenAIProvider(openai_client=sdk), profile=profile)
    profile |= OpenAIModelProfile(
        # Schemas go as they are: others take what OpenAI itself would have changed.
        json_schema_transformer=None,
        openai_supports_strict_tool_definition=False,
        native_output_requires_schema_in_instructions=False,
        openai_chat_supports_max_completion_tokens=False,
        openai_chat_supports_multiple_system_messages=False,
    )
    provider = OpenAICompatibleProvider(config.name, openai_client=sdk)
    return OpenAIChatModel(config.model, provider=provider, profile=profile)


def _anthropic(config: EngineConfig, client: httpx2.AsyncClient) -> Model:
    from anthropic import AsyncAnthropic  # noqa: PLC0415 - imports two thousand modules
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415 - likewise
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

    sdk = AsyncAnthropic(
        api_key=_UNUSED_KEY,
        base_url=config.base_url,
        http_client=client,
        timeout=client.timeout,
        max_retries=0,
        open_telemetry=False,
    )
    return AnthropicModel(config.model, provider=AnthropicProvider(anthropic_client=sdk))


__all__ = ["make_model"]
