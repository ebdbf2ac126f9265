"""A worker's ends of its pipes, for tests of the sidecar's."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from fumehood.v1 import plugin_pb2
from fumehood_server.workers.faults import Violation
from fumehood_server.workers.wire import prefixed
from fumehood_server.workers.wire.frame_reader import FrameReader
from fumehood_server.workers.wire.pipes import PipeWriter
from fumehood_server.workers.wire.portions import PORTION_ITEMS

BOUND_S = 60.0
MAX_FRAME_BYTES = 1000
STEPS = 10 * PORTION_ITEMS
"""In which a frame is taken that is taken in steps."""


@dataclass
class Worker:
    """The worker's ends of its pipes, and what came of the sidecar's: the handler of frames as well."""

    stdin: int
    stdout: int
    ours: tuple[int, int]
    heard: list[int] = field(default_factory=list)
    problems: list[Violation] = field(default_factory=list)
    ends: int = 0
    broken: int = 0
    closed: bool = False
    max_fields: int = 100
    close_after: int = 0
    """Nothing counts any more after this frame. 0: all count."""
    in_steps: frozenset[int] = frozenset()
    """Frames that are taken in `STEPS` steps."""
    steps: int = 0
    faulty: int = 0
    """A frame that can't be taken."""
    faults: int = 0
    writer: PipeWriter | None = None
    reader: FrameReader | None = None

    def written_to(self) -> PipeWriter:
        def note_break() -> None:
            self.broken += 1

        self.writer = PipeWriter(self.ours[0], note_break)
        return self.writer

    def read_from(self, *, stall_s: float = BOUND_S) -> FrameReader:
        self.reader = FrameReader(self.ours[1], self, max_frame_bytes=MAX_FRAME_BYTES, stall_s=stall_s)
        self.reader.resume()
        return self.reader

    def take_frame(self, frame: plugin_pb2.PluginFrame, size: int) -> Generator[None, None, None] | None:
        assert size == frame.ByteSize()
        if frame.result.invocation_id in self.in_steps:
            return self.take_in_steps(frame.result.invocation_id)
        self.hear(frame.result.invocation_id)
        return None

    def take_in_steps(self, number: int) -> Generator[None, None, None]:
        for _ in range(STEPS):
            self.steps += 1
            yield
        self.hear(number)

    def hear(self, number: int) -> None:
        if number == self.faulty:
            raise RuntimeError("of ours")
        self.heard.append(number)
        self.closed = number == self.close_after

    def take_violation(self, violation: Violation, problem: str) -> None:
        assert problem
        self.problems.append(violation)

    def take_fault(self, error: Exception) -> None:
        assert str(error) == "of ours"
        self.faults += 1

    def take_end(self) -> None:
        self.ends += 1

    def close_stdin(self) -> None:
        """The worker reads no more."""
        os.close(self.stdin)
        self.stdin = os.open(os.devnull, os.O_RDONLY)

    def close_stdout(self) -> None:
        os.close(self.stdout)
        self.stdout = os.open(os.devnull, os.O_RDONLY)

    def say(self, *numbers: int) -> None:
        self.say_bytes(b"".join(map(frame, numbers)))

    def say_bytes(self, data: bytes) -> None:
        assert os.write(self.stdout, data) == len(data)

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
                await iteration()
        return got

    async def until_told(self) -> None:
        """Until the reader has told of an end or a violation; and a while longer, for what should not come."""
        async with asyncio.timeout(BOUND_S):
            while not (self.ends or self.problems):
                await iteration()
        for _ in range(5):
            await iteration()


def frame(number: int) -> bytes:
    return prefixed(plugin_pb2.PluginFrame(result=plugin_pb2.Result(invocation_id=number)).SerializeToString())


async def iteration() -> None:
    await asyncio.sleep(0)


@contextlib.contextmanager
def piped() -> Iterator[Worker]:
    (stdin, ours_in), (ours_out, stdout) = os.pipe(), os.pipe()
    for fd in (stdin, ours_in, ours_out):
        os.set_blocking(fd, False)
    made = Worker(stdin, stdout, (ours_in, ours_out))
    try:
        yield made
    finally:
        for end in (made.writer, made.reader):
            if end is not None:
                end.stop()
        for fd in (made.stdin, made.stdout, ours_in, ours_out):
            os.close(fd)
