"""Both ends of a worker's pipes: frames go out at once and in order, floods come in by portions, ends are told once."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from fumehood.v1 import plugin_pb2
from fumehood_server.workers import WorkerSettings
from fumehood_server.workers.faults import Violation
from fumehood_server.workers.wire import prefixed
from fumehood_server.workers.wire.channel import FRAMES_PER_TURN, Channel

BOUND_S = 20.0
MORE_THAN_A_PIPE = 1_000_000


@dataclass
class Wire:
    """A channel, and the worker's ends of its pipes."""

    stdin: int
    stdout: int
    ours: tuple[int, int]
    heard: list[int] = field(default_factory=list)
    faults: list[Violation] = field(default_factory=list)
    channel: Channel | None = None

    def open(self) -> Channel:
        self.channel = Channel(
            asyncio.get_running_loop(),
            stdin=self.ours[0],
            stdout=self.ours[1],
            settings=WorkerSettings(),
            on_frame=lambda frame, _: self.heard.append(frame.result.invocation_id),
            on_fault=lambda violation, _: self.faults.append(violation),
        )
        return self.channel

    def close_stdin(self) -> None:
        """The worker reads no more."""
        os.close(self.stdin)
        self.stdin = os.open(os.devnull, os.O_RDONLY)

    def close_stdout(self) -> None:
        os.close(self.stdout)
        self.stdout = os.open(os.devnull, os.O_RDONLY)

    def say(self, *numbers: int) -> None:
        frames = [plugin_pb2.PluginFrame(result=plugin_pb2.Result(invocation_id=number)) for number in numbers]
        os.write(self.stdout, b"".join(prefixed(frame.SerializeToString()) for frame in frames))

    def read(self) -> bytes:
        try:
            return os.read(self.stdin, 1 << 16)
        except BlockingIOError:
            return b""

    async def read_exactly(self, size: int) -> bytes:
        got = b""
        async with asyncio.timeout(BOUND_S):
            while len(got) < size:
                got += self.read()
                await turn()
        return got


async def turn() -> None:
    await asyncio.sleep(0)


@pytest.fixture
def wire() -> Iterator[Wire]:
    (stdin, ours_in), (ours_out, stdout) = os.pipe(), os.pipe()
    for fd in (stdin, ours_in, ours_out):
        os.set_blocking(fd, False)
    made = Wire(stdin, stdout, (ours_in, ours_out))
    yield made
    if made.channel is not None:
        made.channel.stop()
    for fd in (made.stdin, made.stdout, ours_in, ours_out):
        os.close(fd)


async def test_frame_is_in_the_pipe_when_send_returns(wire: Wire) -> None:
    wire.open().send(b"a")
    assert wire.read() == b"a"


async def test_what_a_full_pipe_does_not_take_comes_later_and_in_order(wire: Wire) -> None:
    channel = wire.open()
    frames = [b"a" * MORE_THAN_A_PIPE, b"b", b"c" * MORE_THAN_A_PIPE, b"d"]
    for frame in frames:
        channel.send(frame)
    expected = b"".join(frames)
    assert 0 < channel.unsent_bytes < len(expected)
    assert await wire.read_exactly(len(expected)) == expected
    assert (channel.unsent_bytes, channel.written_bytes) == (0, len(expected))
    channel.send(b"e")
    assert wire.read() == b"e", "control: written at once again"


async def test_who_waits_for_the_pipe_goes_on_when_enough_was_read(wire: Wire) -> None:
    channel = wire.open()
    channel.send(b"a" * MORE_THAN_A_PIPE)
    waiting = asyncio.create_task(channel.drained(0))
    await turn()
    assert not waiting.done()
    await wire.read_exactly(MORE_THAN_A_PIPE)
    async with asyncio.timeout(BOUND_S):
        await waiting


@pytest.mark.parametrize("size", [1, MORE_THAN_A_PIPE])
async def test_closed_stdin_is_told_once_and_never_from_within_send(wire: Wire, size: int) -> None:
    channel = wire.open()
    channel.send(b"a" * size)
    wire.close_stdin()
    channel.send(b"b")
    channel.send(b"c")
    assert wire.faults == []
    async with asyncio.timeout(BOUND_S):
        await channel.drained(0)
        while not wire.faults:
            await turn()
    await turn()
    assert wire.faults == [Violation.STDIN_CLOSED]


async def test_nothing_is_written_or_told_after_stop(wire: Wire) -> None:
    channel = wire.open()
    channel.send(b"a" * MORE_THAN_A_PIPE)
    waiting = asyncio.create_task(channel.drained(0))
    await turn()
    wire.close_stdin()
    channel.send(b"b")
    channel.stop()
    channel.send(b"c")
    wire.say(1)
    async with asyncio.timeout(BOUND_S):
        await waiting
    for _ in range(5):
        await turn()
    assert (wire.heard, wire.faults) == ([], [])


async def test_stop_between_a_broken_pipe_and_its_telling_silences_it(wire: Wire) -> None:
    channel = wire.open()
    wire.close_stdin()
    channel.send(b"a")
    channel.stop()
    await turn()
    assert wire.faults == []


async def test_flood_is_handed_on_by_portions_and_in_order(wire: Wire) -> None:
    wire.open()
    count = FRAMES_PER_TURN * 5
    wire.say(*range(1, count + 1))
    portions = [0]
    async with asyncio.timeout(BOUND_S):
        while len(wire.heard) < count:
            await turn()
            portions.append(len(wire.heard))
    assert wire.heard == list(range(1, count + 1))
    assert max(after - before for before, after in itertools.pairwise(portions)) == FRAMES_PER_TURN


async def test_last_frames_come_before_the_closed_stdout_which_is_told_once(wire: Wire) -> None:
    wire.open()
    wire.say(1, 2)
    wire.close_stdout()
    async with asyncio.timeout(BOUND_S):
        while not wire.faults:
            await turn()
    await turn()
    assert (wire.heard, wire.faults) == ([1, 2], [Violation.STDOUT_CLOSED])
