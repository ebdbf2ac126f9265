"""Callers whose requests wait for what another request has begun."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from typing import Any

from fumehood.v1 import plugin_service_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.rpc.support import call
from tests.soak.arena import CALL_TIMEOUT_S, Arena

_HELD_BYTES = 900_000
_HELD_S = 1.0
_JOINS = 100
_WAITS = 300


async def joins(arena: Arena) -> None:
    """One call of nearly 1 MB that is asked for again very often while it runs, with all of its arguments."""
    async with arena.channel() as one, arena.channel() as other:

        async def joined() -> None:
            request = call("hold", {"text": "x" * _HELD_BYTES, "seconds": _HELD_S}, call_id=str(uuid.uuid4()))
            tools = [arena.tools(channel) for channel in (one, other)]
            await asyncio.gather(*(_counted(arena, tools[number % 2], request) for number in range(_JOINS)))

        await arena.repeat(joined)


async def _counted(arena: Arena, tools: Any, request: pb.CallToolRequest) -> None:
    answer = await arena.counted(tools.CallTool(request, timeout=CALL_TIMEOUT_S))
    if answer is not None:
        arena.outcomes[answer.result.error.code or "ok"] += 1


async def waits(arena: Arena) -> None:
    """Very many requests that wait for the outcome of a call, and for a plugin to be read again."""
    async with arena.channel() as one, arena.channel() as other:

        async def waited() -> None:
            call_id = str(uuid.uuid4())
            held = call("hold", {"text": "x", "seconds": _HELD_S}, call_id=call_id)
            asked = pb.GetCallRequest(call_id=call_id, wait=True)
            reload = plugin_service_pb2.ReloadPluginRequest(name="honest")
            tools = [arena.tools(channel) for channel in (one, other)]
            owner = asyncio.ensure_future(_counted(arena, tools[0], held))
            await asyncio.sleep(_HELD_S / 4)
            await asyncio.gather(
                owner,
                *(_waited(arena, tools[number % 2].GetCall(asked, timeout=CALL_TIMEOUT_S)) for number in range(_WAITS)),
                *(
                    _waited(arena, arena.plugins(one).ReloadPlugin(reload, timeout=CALL_TIMEOUT_S))
                    for _ in range(_WAITS)
                ),
            )

        await arena.repeat(waited)


async def _waited(arena: Arena, answer: Awaitable[object]) -> None:
    if await arena.counted(answer) is not None:
        arena.outcomes["ok"] += 1
