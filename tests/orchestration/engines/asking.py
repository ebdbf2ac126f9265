"""Engines of tests, over the scripted model, and what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.config.engines import EngineConfig, Provider
from fumehood_server.orchestration.engines.engine import Engine, EngineError, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.engines.opening import open_engines
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.secrets import SecretSource, SecretStore

from tests.orchestration.scripted import MODEL

KEY = "sk-secret-0123456789"


def config(base_url: str, **more: Any) -> EngineConfig:
    """An engine that speaks OpenAI's API there. It needs no key unless `secret` says so."""
    defaults: dict[str, Any] = {"name": "local", "provider": Provider.OPENAI, "model": MODEL}
    return EngineConfig(base_url=base_url, **(defaults | more))


@asynccontextmanager
async def opened(base_url: str, *, keys: Mapping[str, Path] | None = None, **more: Any) -> AsyncIterator[Engine]:
    """The engine, open. `keys` are files of secrets by name."""
    store = SecretStore({name: SecretSource(name=name, file=path) for name, path in (keys or {}).items()})
    async with open_engines([config(base_url, **more)], store) as engines:
        yield engines["local"]


def user(text: str) -> Message:
    return Message(role=Role.USER, text=text)


def question(*messages: Message, **more: Any) -> InferenceRequest:
    return InferenceRequest(messages=messages or (user("What is it?"),), **more)


async def asked(base_url: str, request: InferenceRequest | None = None, **more: Any) -> InferenceAnswer:
    """One answer of an engine that is opened for it."""
    async with opened(base_url, **more) as engine:
        return await engine.infer(request or question(), lambda _: None)


async def failed(base_url: str, request: InferenceRequest | None = None, **more: Any) -> EngineError:
    """How it failed, within a minute."""
    async with asyncio.timeout(60), opened(base_url, **more) as engine:
        with pytest.raises(EngineError) as error:
            await engine.infer(request or question(), lambda _: None)
        return error.value
