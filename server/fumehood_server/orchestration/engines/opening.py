"""Opens the engines of the configuration, and closes them. Imports their libraries only where there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from fumehood_server.config.engines import EngineConfig
from fumehood_server.orchestration.engines.engine import Engine
from fumehood_server.orchestration.engines.engine_thread import engine_thread
from fumehood_server.secrets import SecretStore


@asynccontextmanager
async def open_engines(configs: Sequence[EngineConfig], secrets: SecretStore) -> AsyncIterator[Mapping[str, Engine]]:
    """The engines by name, to be asked on this event loop. None is asked anything yet.

    Their libraries take two to four seconds to import, beside the event loop.
    """
    if not configs:
        yield {}
        return
    async with engine_thread(configs, secrets) as engines:
        yield engines


__all__ = ["open_engines"]
