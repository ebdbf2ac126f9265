"""Callers that behave well: a call every so often, whatever became of those before. One line for each outcome.

`python -m tests.soak.caller call|echo TARGET OUTCOMES PERIOD`: of a tool, or of the bare server of `tests.soak.echo`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import call, text_of
from tests.soak.arena import reason_of
from tests.soak.echo import ECHO

TIMEOUT_S = 60.0
"""No outcome by then counts as none at all."""
MAX_UNDER_WAY = 12
"""What a caller on a unix socket may have of the sidecar's 256 places whatever others have: three quarters of the 16
that are kept for such. A call that waits for one of them here is late by that."""

Ask = Callable[[str], Awaitable[str]]
"""Says a text, and returns "ok" if it was said again, or what came in its place."""


def tool(channel: grpc.aio.Channel) -> Ask:
    """A tool of the sidecar says it again."""
    tools = ToolServiceStub(channel)

    async def ask(text: str) -> str:
        answer = await tools.CallTool(call("repeat", {"text": text}), timeout=TIMEOUT_S)
        return "ok" if text_of(answer.result) == text else answer.result.error.code or "wrong"

    return ask


def echo(channel: grpc.aio.Channel) -> Ask:
    """A bare server says it again."""
    method = channel.unary_unary(ECHO, bytes, bytes)

    async def ask(text: str) -> str:
        return "ok" if await method(text.encode(), timeout=TIMEOUT_S) == text.encode() else "wrong"

    return ask


async def behave(ask_by: Callable[[grpc.aio.Channel], Ask], target: str, outcomes: Path, period_s: float) -> None:
    """Call until SIGTERM, then wait for what is under way. A line: when it was due, milliseconds, how it ended."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    with outcomes.open("w", buffering=1) as file:
        async with grpc.aio.insecure_channel(target) as channel, asyncio.TaskGroup() as tasks:
            ask, places = ask_by(channel), asyncio.Semaphore(MAX_UNDER_WAY)

            async def one(number: int, due: float) -> None:
                try:
                    async with places:
                        ending = await ask(str(number))
                except grpc.aio.AioRpcError as error:
                    ending = reason_of(error).replace(" ", "_")
                file.write(f"{due:.4f} {(time.time() - due) * 1000:.2f} {ending}\n")

            number, due = 0, time.time()
            while not stop.is_set():
                tasks.create_task(one(number, due))
                number, due = number + 1, due + period_s
                await asyncio.sleep(max(due - time.time(), 0))


if __name__ == "__main__":
    ways = {"call": tool, "echo": echo}
    asyncio.run(behave(ways[sys.argv[1]], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])))
