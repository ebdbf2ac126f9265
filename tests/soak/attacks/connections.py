"""Callers that are very many, and do nothing or listen."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
from fumehood.v1 import plugin_service_pb2

from tests.soak.arena import Arena
from tests.soak.house import DESCRIPTORS
from tests.soak.http2 import RawConnection

_MORE = 500
_FOLLOWERS = 3000
_OF_A_CONNECTION = 100


async def idle(arena: Arena) -> None:
    """More connections than the sidecar has descriptors; meanwhile newcomers come to the other address."""
    connections: list[RawConnection] = []
    try:
        for _ in range(DESCRIPTORS + _MORE):
            with contextlib.suppress(OSError):
                connections.append(await RawConnection.connect(arena.public))
        arena.outcomes["connected"] = len(connections)

        async def newcomer() -> None:
            async with arena.channel(arena.private) as channel:
                try:
                    await asyncio.wait_for(channel.channel_ready(), 5)
                except TimeoutError:
                    arena.outcomes["! a newcomer did not get in"] += 1
                    return
                await arena.call(channel, "repeat", {"text": "hi"})
            await asyncio.sleep(0.1)

        await arena.repeat(newcomer)
    finally:
        for connection in connections:
            connection.close()


async def followers(arena: Arena) -> None:
    """Followers of the log of a plugin that goes on writing."""
    request = plugin_service_pb2.TailPluginLogsRequest(name="honest", lines=1, follow=True)
    async with contextlib.AsyncExitStack() as stack:
        count = _FOLLOWERS // _OF_A_CONNECTION
        channels = [await stack.enter_async_context(arena.channel()) for _ in range(count)]

        async def follow(channel: grpc.aio.Channel) -> None:
            async def read() -> None:
                async for _ in arena.plugins(channel).TailPluginLogs(request):
                    arena.outcomes["lines"] += 1

            await arena.counted(read())

        tasks = [asyncio.create_task(follow(channel)) for channel in channels for _ in range(_OF_A_CONNECTION)]
        await arena.repeat(lambda: arena.call(channels[0], "mutter", {"lines": 1500, "pause_s": 0}))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
