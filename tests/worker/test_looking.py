"""Looking into a worker's pipe outside of the loop's own turn: in any order with its end, its pauses and its floods."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from fumehood.v1 import plugin_pb2
from fumehood_server.wire import prefixed
from fumehood_server.worker import WorkerSettings
from fumehood_server.worker.channel import FRAMES_PER_TURN, Channel
from fumehood_server.worker.faults import Violation

BOUND_S = 20.0


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
            on_frame=lambda frame, _: self.hear(frame),
            on_fault=lambda violation, _: self.faults.append(violation),
        )
        return self.channel

    def hear(self, frame: plugin_pb2.PluginFrame) -> None:
        self.heard.append(frame.result.invocation_id)

    def say(self, *numbers: int) -> None:
        frames = [plugin_pb2.PluginFrame(result=plugin_pb2.Result(invocation_id=number)) for number in numbers]
        os.write(self.stdout, b"".join(prefixed(frame.SerializeToString()) for frame in frames))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while len(self.heard) < count:  # noqa: ASYNC110 - the loop's turns are what is tested
                await asyncio.sleep(0)


@pytest.fixture
def wire() -> Iterator[Wire]:
    (stdin, ours_in), (ours_out, stdout) = os.pipe(), os.pipe()
    for fd in (ours_in, ours_out):
        os.set_blocking(fd, False)
    made = Wire(stdin, stdout, (ours_in, ours_out))
    yield made
    if made.channel is not None:
        made.channel.stop()
    for fd in (stdin, stdout, ours_in, ours_out):
        os.close(fd)


async def test_look_hands_on_what_is_there_and_says_when_nothing_is(wire: Wire) -> None:
    channel = wire.open()
    assert not channel.look()
    wire.say(1)
    assert channel.look()
    assert wire.heard == [1]
    assert not channel.look()


async def test_look_at_a_flood_takes_one_turns_worth_and_keeps_the_order(wire: Wire) -> None:
    channel = wire.open()
    count = FRAMES_PER_TURN * 5
    wire.say(*range(1, count + 1))
    assert channel.look()
    assert wire.heard == [*range(1, FRAMES_PER_TURN + 1)]
    wire.say(count + 1)
    others: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: others.append(len(wire.heard)))
    for _ in range(10):
        assert channel.look(), "it is as good as something: who looks goes on with other things"
    assert len(wire.heard) == FRAMES_PER_TURN
    await wire.until(count + 1)
    assert wire.heard == [*range(1, count + 2)]
    assert others[0] <= FRAMES_PER_TURN * 2, "the others had their turn in between"


async def test_look_after_the_end_reads_no_descriptor(wire: Wire) -> None:
    """Its number may be another pipe's by then."""
    channel = wire.open()
    wire.say(1)
    assert channel.look()
    channel.stop()
    wire.say(2)
    assert channel.look()
    assert wire.heard == [1]
    assert os.read(wire.ours[1], 100), "control: there was something to read"


async def test_worker_that_is_ended_for_what_a_look_found_is_heard_no_more(wire: Wire) -> None:
    channel = wire.open()

    def end(frame: plugin_pb2.PluginFrame) -> None:
        wire.heard.append(frame.result.invocation_id)
        channel.stop()

    wire.hear = end  # type: ignore[method-assign] # what the worker does with a violation, and with its one result
    wire.say(1, 2, 3)
    assert channel.look()
    assert wire.heard == [1]
    assert channel.look()
    assert wire.heard == [1]


async def test_look_at_a_closed_or_broken_pipe_tells_so_once(wire: Wire) -> None:
    channel = wire.open()
    os.write(wire.stdout, b"\x03\xff\xff\xff")
    assert channel.look()
    assert wire.faults == [Violation.FRAME_MALFORMED]
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, wire.stdout)
    os.close(empty)
    for _ in range(3):
        assert channel.look()
    assert wire.faults == [Violation.FRAME_MALFORMED, Violation.STDOUT_CLOSED]
