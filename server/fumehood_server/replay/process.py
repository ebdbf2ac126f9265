"""A process that runs recorded calls again beside the sidecar, at a lower priority.

Its standard input and output are one socket. It reads pickles, each after its length in eight bytes: the configuration,
then pages of calls; a length of 0 ends them. It writes what came of each call as a line of JSON, and last `null`. Its
argument is a descriptor that the sidecar holds the other end of: it ends what it runs and itself when that is closed,
so also when the sidecar is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson

from fumehood_server.config.config import JournalConfig, SidecarConfig
from fumehood_server.config.egress import EgressConfig
from fumehood_server.replay.record import ReplayableCall
from fumehood_server.replay.rerun import Rerun, rerun_calls
from fumehood_server.telemetry import TelemetrySettings

NICENESS = 10
LENGTH_BYTES = 8
AT_A_TIME = 2
"""Calls that run: the machine is others' as well."""


def sent_config(config: SidecarConfig) -> SidecarConfig:
    """What the process needs of a configuration: neither keys nor anything that leads to secrets."""
    return replace(config, journal=JournalConfig(), secrets={}, egress=EgressConfig(), telemetry=TelemetrySettings())


END_FRAME = bytes(LENGTH_BYTES)


def frame(value: object) -> bytes:
    """A pickle after its length. For the process that starts this one."""
    data = pickle.dumps(value)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def main(arguments: Sequence[str]) -> int:
    """Serve one replay. Returns the exit status."""
    os.nice(NICENESS)
    stream = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody else's words
    asyncio.run(_replay(stream, int(arguments[0])))
    return 0


async def _replay(stream: socket.socket, lifeline: int) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        loop.remove_reader(lifeline)
        if task is not None:
            task.cancel()

    loop.add_reader(lifeline, end)
    reader, writer = await asyncio.open_unix_connection(sock=stream)
    config = await _read(reader)

    async def calls() -> AsyncIterator[ReplayableCall]:
        while (page := await _read(reader)) is not None:
            for call in page:
                yield call

    async def tell(rerun: Rerun) -> None:
        writer.write(_line(rerun))
        await writer.drain()

    try:
        with contextlib.suppress(asyncio.CancelledError):
            await rerun_calls(config, calls(), tell, at_a_time=AT_A_TIME)
            writer.write(b"null\n")
            await writer.drain()
    finally:
        writer.close()


def _line(rerun: Rerun) -> bytes:
    fields = asdict(rerun)
    fields["divergence"] = None if rerun.divergence is None else rerun.divergence._asdict()
    return orjson.dumps(fields) + b"\n"


async def _read(reader: asyncio.StreamReader) -> Any:  # noqa: ANN401 - what the sidecar sends
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    # Of the sidecar's own, over a socket that nobody else has.
    return pickle.loads(await reader.readexactly(length)) if length else None  # noqa: S301


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
