"""Whoever follows the journal has every event once, over the death of one sidecar and the start of the next."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import journal_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub

from tests.cli.command import COMMAND, environment
from tests.rpc.support import ToolClient, call
from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .reading import BOUND_S
from .test_retention import CODE

TRACED = {"PYTHONFAULTHANDLER": "1"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        path = Path(name)
        path.chmod(0o755)
        write_plugin(path / "plugin", "dice", CODE)
        yield path


async def busy(sidecar: Sidecar) -> None:
    """Call until the sidecar is gone."""
    async with sidecar.channel() as channel:
        client = ToolClient(sidecar, channel)
        while True:
            await client.tools.CallTool(call("roll"))


async def journal_size(sidecar: Sidecar) -> int:
    async with sidecar.channel() as channel:
        stub: Any = JournalServiceStub(channel)
        return int((await stub.ListEvents(pb.ListEventsRequest())).journal_size)


class Watcher:
    """Resumes where it was."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self._next = 0

    async def follow(self, sidecar: Sidecar, until: int, enough: asyncio.Event) -> None:
        """Until the sidecar is gone. `enough` is set once everything before a position came."""
        async with sidecar.channel() as channel:
            stub: Any = JournalServiceStub(channel)
            wanted = pb.EventFilter(start_position=self._next)
            async for message in stub.WatchEvents(pb.WatchEventsRequest(filter=wanted)):
                self.positions += (event.position for event in message.events)
                self._next = message.next_position
                if self._next >= until:
                    enough.set()


async def printed(tail: subprocess.Popen[bytes], positions: list[int], until: int) -> None:
    assert tail.stdout is not None
    while len(positions) < until:
        line = await asyncio.to_thread(tail.stdout.readline)
        positions.append(json.loads(line)["position"])


def exit_status(tail: subprocess.Popen[bytes], notes: Path) -> int:
    """Its exit status."""
    try:
        return tail.wait(BOUND_S)
    except subprocess.TimeoutExpired as late:
        tail.send_signal(signal.SIGABRT)  # at which it says where each of its threads is
        tail.wait(BOUND_S)
        late.add_note(notes.read_text())
        raise


async def test_nothing_is_lost_or_told_twice_when_the_sidecar_is_killed_and_started_again(folder: Path) -> None:
    positions: list[int] = []
    watcher, enough, all_of_it = Watcher(), asyncio.Event(), asyncio.Event()
    with running_sidecar([folder / "plugin"], at=folder) as sidecar:
        command = [*COMMAND, "journal", "tail", "-f", "-n", "1000", "--json", "--address", sidecar.target]
        with (folder / "notes").open("wb") as notes:
            tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=notes, env=environment(more=TRACED))  # noqa: ASYNC220
        async with asyncio.timeout(BOUND_S):
            await printed(tail, positions, 1)  # what comes later it is told by the sidecar, and does not ask for
        tasks = [asyncio.create_task(busy(sidecar)) for _ in range(3)]
        tasks.append(asyncio.create_task(watcher.follow(sidecar, 100, enough)))
        async with asyncio.timeout(BOUND_S):
            await printed(tail, positions, 100)
            await enough.wait()
        sidecar.signal(signal.SIGKILL)
        await asyncio.to_thread(sidecar.wait)
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, grpc.aio.AioRpcError)
    try:
        with running_sidecar([folder / "plugin"], at=folder) as sidecar:
            async with sidecar.channel() as channel:
                await ToolClient(sidecar, channel).tools.CallTool(call("roll"))
            size = await journal_size(sidecar)
            task = asyncio.create_task(watcher.follow(sidecar, size, all_of_it))
            async with asyncio.timeout(BOUND_S):
                await printed(tail, positions, size)
                await all_of_it.wait()
            task.cancel()
            tail.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(exit_status, tail, folder / "notes") == 0
    finally:
        tail.kill()
        tail.communicate()
    assert positions == [*range(size)]
    assert watcher.positions == [*range(len(watcher.positions))]
    assert len(watcher.positions) >= size
    assert (folder / "notes").read_text().count("has ended") == 1
