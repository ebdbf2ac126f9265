"""Callers whose requests are costly to check, or very many."""

from __future__ import annotations

import asyncio
import json

from fumehood.v1 import plugin_service_pb2

from tests.soak.arena import Arena

_KEYS = 80_000
_BURST = 4000
_TEXT_BYTES = 1_000_000


async def keys_twice(arena: Arena) -> None:
    """Arguments in which the last of very many keys stands twice."""
    keys = ",".join(f'"{number}":0' for number in range(_KEYS))
    text = f'{{"text":"x",{keys},"{_KEYS - 1}":0}}'
    async with arena.channel() as channel:
        await arena.repeat(lambda: arena.call_text(channel, "echo", text), lanes=2)


async def many_rules(arena: Arena) -> None:
    """A long value at which many rules look."""
    text = json.dumps({"value": "x" * _TEXT_BYTES})
    async with arena.channel() as channel:
        await arena.repeat(lambda: arena.call_text(channel, "refs", text), lanes=2)


async def bursts(arena: Arena) -> None:
    """Very many calls at once, on two connections."""
    async with arena.channel() as one, arena.channel() as other:

        async def burst() -> None:
            both = (one, other)
            await asyncio.gather(*(arena.call(both[n % 2], "echo", {"text": "hi"}) for n in range(_BURST)))

        await arena.repeat(burst)


async def reloads(arena: Arena) -> None:
    """A plugin that is read and asked for its tools again and again."""
    async with arena.channel() as channel:

        async def reload() -> None:
            request = plugin_service_pb2.ReloadPluginRequest(name="honest")
            if await arena.counted(arena.plugins(channel).ReloadPlugin(request, timeout=60)) is not None:
                arena.outcomes["ok"] += 1

        await arena.repeat(reload)
