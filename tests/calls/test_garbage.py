"""What a call leaves behind for the collector of circles: nothing, since thousands come a second."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import structlog
from fumehood_server.calls import Executor
from fumehood_server.config.config import load_config
from fumehood_server.model.call import CallUpdate
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.workers import LogSink, Pools

from tests.calls.fake import request

CALLS = 50
BOUND_S = 30.0
ARGUMENTS = '{"count":1,"sides":6}'
DICE = Path(__file__).resolve().parents[2] / "examples" / "plugins" / "dice"


async def test_the_memory_of_a_call_is_free_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(f'[server]\nlisten = ["unix:{tmp_path}/s.sock"]\n\n[[plugin]]\npath = "{DICE}"\n')
    log = structlog.wrap_logger(structlog.testing.CapturingLogger())
    updates: list[CallUpdate] = []
    async with asyncio.timeout(BOUND_S), Pools(LogSink()) as pools:
        catalog = await Catalog.load(load_config(path), describe=pools.describe, log=log)
        async with Executor(catalog, pools, max_concurrent_calls=4) as executor:

            async def calls() -> None:
                for _ in range(CALLS):
                    outcome = await executor.call(request(ARGUMENTS, name="roll_dice"), updates.append)
                    assert outcome.error is None

            await calls()
            gc.collect()
            gc.disable()
            try:
                await calls()
                found = gc.collect()
            finally:
                gc.enable()
    assert found < CALLS
