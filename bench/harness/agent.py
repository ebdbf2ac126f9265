"""The inside of a load client: reads commands from stdin and answers on stdout, one JSON object a line.

`load` runs the closed loop. `start` starts a server of its own, gets one answer, ends it, and tells how long the answer
took. `server` tells the process id of the server, where the client is the one that starts it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict

from bench.harness.load import Echo, run

Connect = Callable[[], AbstractAsyncContextManager[Echo]]
Start = Callable[[], AbstractAsyncContextManager[Echo]]


async def serve(connect: Connect, start: Start, server_pid: Callable[[], int] = lambda: 0) -> None:
    """Answer commands until stdin ends. `connect` reaches the server under load, `start` starts one of its own."""
    commands = await _stdin()
    async with connect() as echo:
        while line := await commands.readline():
            command = json.loads(line)
            match command["do"]:
                case "load":
                    answer = asdict(await run(echo, in_flight=command["in_flight"], calls=command["calls"]))
                case "start":
                    answer = {"start_ms": await _time_start(start)}
                case _:
                    await echo()
                    answer = {"server_pid": server_pid()}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


async def _time_start(start: Start) -> float:
    begun = time.perf_counter()
    async with start() as echo:
        await echo()
        return (time.perf_counter() - begun) * 1000


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader
