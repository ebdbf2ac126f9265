"""Plugins that keep the egress broker busy."""

from __future__ import annotations

import asyncio
import itertools
import json

from tests.soak.arena import Arena
from tests.soak.house import NEIGHBOUR

_BODIES_OF_A_CALL = 8
_CALLS = 4
_CHUNKS = b"1\r\nx\r\n" * 10_000
_PAUSE_S = 0.25
"""Between them, of each body: all of them are more than can be taken, and sockets hold no minutes of it."""
_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_SHORT = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def one_byte_chunks(arena: Arena) -> None:
    """Bodies that are cut as small as can be, as long as they are taken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_HEAD)
            while arena.left_s:
                writer.write(_CHUNKS)
                await writer.drain()
                await asyncio.sleep(_PAUSE_S)
            writer.write(b"0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            arena.outcomes["cut off"] += 1
        finally:
            writer.close()

    port = _port(arena)
    async with await asyncio.start_server(serve, sock=arena.web), arena.channel() as channel:
        arguments = {"url": f"http://127.0.0.1:{port}/", "times": _BODIES_OF_A_CALL}
        await arena.repeat(lambda: arena.call(channel, "fetcher_fetch", arguments), lanes=_CALLS)


async def slow_names(arena: Arena) -> None:
    """Names of two plugins that nobody answers for. A third one's name must be found meanwhile."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_SHORT)
        writer.close()

    numbers = itertools.count()
    port = _port(arena)
    async with await asyncio.start_server(serve, sock=arena.web), arena.channel() as channel:

        async def slow(plugin: str) -> None:
            url = f"http://n{next(numbers)}.slow.soak.example/"
            await arena.call(channel, f"{plugin}_fetch", {"url": url, "times": _BODIES_OF_A_CALL})

        async def neighbour() -> None:
            url = f"http://{NEIGHBOUR}:{port}/"
            result = await arena.call(channel, "neighbour_fetch", {"url": url, "times": 1})
            if result is not None and not result.is_error and json.loads(result.details_json) != ["200"]:
                arena.outcomes[f"! the neighbour was told {result.details_json}"] += 1
            await asyncio.sleep(0.05)

        await asyncio.gather(
            arena.repeat(lambda: slow("fetcher"), lanes=_CALLS),
            arena.repeat(lambda: slow("fetcher2"), lanes=_CALLS),
            arena.repeat(neighbour),
        )


def _port(arena: Arena) -> int:
    if arena.web is None:
        raise AssertionError("the attack takes a listening socket")
    port: int = arena.web.getsockname()[1]
    return port
