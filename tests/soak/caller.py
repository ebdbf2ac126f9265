"""The caller that behaves well: a call every 10 ms, whatever became of those before. One line for each outcome."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import grpc
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import call, text_of

PERIOD_S = 0.01
TIMEOUT_S = 60.0
"""No outcome by then counts as none at all."""


async def behave(target: str, outcomes: Path) -> None:
    """Call until SIGTERM, then wait for what is under way. A line: when it was due, milliseconds, how it ended."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    with outcomes.open("w", buffering=1) as file:
        async with grpc.aio.insecure_channel(target) as channel, asyncio.TaskGroup() as tasks:
            tools = ToolServiceStub(channel)

            async def one(number: int, due: float) -> None:
                try:
                    answer = await tools.CallTool(call("repeat", {"text": str(number)}), timeout=TIMEOUT_S)
                    ending = "ok" if text_of(answer.result) == str(number) else answer.result.error.code or "wrong"
                except grpc.aio.AioRpcError as error:
                    ending = error.code().name
                file.write(f"{due:.4f} {(time.time() - due) * 1000:.2f} {ending}\n")

            number, due = 0, time.time()
            while not stop.is_set():
                tasks.create_task(one(number, due))
                number, due = number + 1, due + PERIOD_S
                await asyncio.sleep(max(due - time.time(), 0))


if __name__ == "__main__":
    asyncio.run(behave(sys.argv[1], Path(sys.argv[2])))
