"""Callers whose requests are costly to check, or very many."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

from fumehood.v1 import plugin_service_pb2

from tests.soak.arena import Arena

_KEYS = 80_000
_BURST = 4000
_TEXT_BYTES = 1_000_000
_VALUES = 9_000
"""In one definition: at more the sidecar refuses it unread."""
_PATTERNS = 20
"""Each in a definition of its own, near to what one may take to build, and together to what a plugin's may."""


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


async def definitions(arena: Arena) -> None:
    """A plugin read again and again whose definitions are others each time, long and costly to check."""
    async with arena.channel() as channel:
        plugins = arena.plugins(channel)
        found = await plugins.GetPlugin(plugin_service_pb2.GetPluginRequest(name="changing"))
        manifest = Path(found.plugin.path) / "plugin.toml"
        head = manifest.read_text().partition("[[tool]]")[0]

        async def reload() -> None:
            manifest.write_text(head + "".join(map(_definition, range(_PATTERNS))))
            request = plugin_service_pb2.ReloadPluginRequest(name="changing")
            await arena.counted(plugins.ReloadPlugin(request, timeout=60))

        await arena.repeat(reload)


def _definition(number: int) -> str:
    schema = {
        "type": "object",
        "properties": {"x": {"pattern": f"^\\pL{{{random.randrange(70, 80)}}}$"}},  # noqa: S311 - no secret
        "examples": [[random.randrange(101) for _ in range(_VALUES)]],  # noqa: S311 - no secret
    }
    return (
        f'[[tool]]\nname = "tool{number}"\ndescription = "One of many, and another each time."\n'
        f"side_effects = \"none\"\ninput_schema = '{json.dumps(schema)}'\n"
    )
