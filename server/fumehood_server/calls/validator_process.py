"""One validator process, from the sidecar's side: started with nothing but a socket, asked, ended."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import subprocess
import sys

from fumehood_server.launches import import_path, start_off_loop
from fumehood_server.validation.documents import Document, Verdict
from fumehood_server.validation.wire import (
    ANSWER_HEAD,
    MAX_ANSWER_BYTES,
    BrokenAnswerError,
    decode_verdict,
    encode_document,
)

_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from fumehood_server.validation.process import main; main()"

_READ_BYTES = 256 * 1024


class ValidatorProcess:
    """A process that runs. Not for two documents at a time."""

    __slots__ = ("_process", "_reader", "_writer")

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    async def check(self, document: Document) -> Verdict:
        """Its verdict. After a cancellation, or any error but the last, it must be ended: an answer may be on its way.

        Raises:
            EOFError, ConnectionError: it has ended.
            BrokenAnswerError: it answered with what is no verdict.
            ValidatorFaultError: it failed by a fault of ours, and goes on.
        """
        self._writer.write(encode_document(document))
        await self._writer.drain()
        status, size = ANSWER_HEAD.unpack(await self._reader.readexactly(ANSWER_HEAD.size))
        if size > MAX_ANSWER_BYTES:
            raise BrokenAnswerError
        return decode_verdict(document, status, await self._reader.readexactly(size))

    async def end(self) -> int:
        """Kill it, and return its exit status: that of before, if it had ended by itself."""
        self._writer.close()
        self._process.kill()
        # It can't refuse SIGKILL, but the kernel may take a while to free its memory: not on the loop.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._process.wait))


async def start_validator() -> ValidatorProcess:
    """Start one. It must be ended.

    Raises:
        OSError: the machine has no process or no memory for it.
    """
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as undo:
        undo.enter_context(ours)
        process = await start_off_loop(functools.partial(_launch, theirs), undo=_end)
        undo.callback(_end, process)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_READ_BYTES)
        undo.pop_all()
    return ValidatorProcess(process, reader, writer)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _launch(stream: socket.socket) -> subprocess.Popen[bytes]:
    # No environment: an operator may keep secrets there. -I -S: nothing but what the sidecar itself imports from.
    # A session of its own: SIGINT from a terminal is for the sidecar, which drains.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *import_path()],
        stdin=stream.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )
