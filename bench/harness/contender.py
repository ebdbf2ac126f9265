"""One contender: a load client in a process of its own, and the server that it talks to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.harness.load import Load
from bench.harness.processes import read_line, running
from bench.payload import TEXT

ANSWER_S = 300.0
"""Longest that one command may take: a long load on the slowest peer, with room for a busy machine."""


class _Ask:
    """Sends one command, reads one answer."""

    def __init__(self, process: asyncio.subprocess.Process, command: Sequence[str]) -> None:
        self._process = process
        self._command = command

    async def __call__(self, request: dict[str, object]) -> dict[str, float]:
        if self._process.stdin is None:
            raise RuntimeError("a client is always started with a pipe")
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()
        answer: dict[str, float] = json.loads(await read_line(self._process, self._command, ANSWER_S))
        return answer


@dataclass(frozen=True, slots=True)
class Contender:
    """A load client that waits for commands."""

    name: str
    ask: _Ask

    async def load(self, *, in_flight: int, calls: int) -> Load:
        """Run a closed loop of calls."""
        answer = await self.ask({"do": "load", "in_flight": in_flight, "calls": calls, "text": TEXT})
        return Load(**answer)

    async def start_ms(self) -> float:
        """Start a server anew and return the time until its first answer."""
        return float((await self.ask({"do": "start", "text": TEXT}))["start_ms"])

    async def server_pid(self) -> int:
        """Return the process id of the server that the client started. 0 where somebody else did."""
        return int((await self.ask({"do": "server", "text": TEXT}))["server_pid"])


@asynccontextmanager
async def contender(name: str, command: Sequence[str]) -> AsyncIterator[Contender]:
    """Start a load client. Its server is there by then, or started by the client itself."""
    async with running(command) as process:
        yield Contender(name, _Ask(process, command))
