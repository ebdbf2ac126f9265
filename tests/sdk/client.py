"""The sidecar's end of a plugin's pipes, for tests: generated code on this side, the SDK's own on the other."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.v1.content_pb2 import Content
from fumehood.v1.plugin_pb2 import Cancel, Hello, HostFrame, Invoke, PluginFrame, Ready, Result, Shutdown
from fumehood.v1.tool_pb2 import CallContext
from google.protobuf.internal.decoder import _DecodeVarint32
from google.protobuf.internal.encoder import _VarintBytes

PLUGINS = Path(__file__).parent / "plugins"
WAIT_S = 20.0
"""For what takes milliseconds: a busy machine may stand still for seconds."""


class StalledError(AssertionError):
    """The plugin did not say what was waited for."""


class PluginClient:
    """Speaks the wire with one plugin process."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._stderr = stderr
        self._buffer = b""
        self._kept: list[PluginFrame] = []
        self._next_id = 1

    def send_bytes(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._in, data) :]

    def send(self, frame: HostFrame) -> None:
        self.send_bytes(delimited(frame.SerializeToString()))

    def hello(self, **fields: object) -> Ready:
        values = {"protocol_versions": [1], "max_frame_bytes": 4 << 20, "max_concurrent_calls": 8, **fields}
        self.send(HostFrame(hello=Hello(**values)))  # type: ignore[arg-type]  # whatever a test wants to say
        frame = self.frame()
        assert frame.WhichOneof("frame") == "ready", frame
        return frame.ready

    def invoke(self, tool: str, arguments: str = "{}", **fields: object) -> int:
        """Start a call. Returns its id."""
        invocation_id, self._next_id = self._next_id, self._next_id + 1
        values = {"call_id": f"call-{invocation_id}", "attempt": 1, "context": CallContext(), **fields}
        invoke = Invoke(invocation_id=invocation_id, tool=tool, arguments_json=arguments, **values)  # type: ignore[arg-type]
        invoke.timeout.seconds = 30
        self.send(HostFrame(invoke=invoke))
        return invocation_id

    def cancel(self, invocation_id: int, *, grace_ms: int = 20) -> None:
        frame = HostFrame(cancel=Cancel(invocation_id=invocation_id, reason=2))
        frame.cancel.grace.FromMilliseconds(grace_ms)
        self.send(frame)

    def shutdown(self, grace_s: int = 10) -> None:
        frame = HostFrame(shutdown=Shutdown())
        frame.shutdown.grace.seconds = grace_s
        self.send(frame)

    def call(self, tool: str, arguments: str = "{}", **fields: object) -> Result:
        return self.result(self.invoke(tool, arguments, **fields))

    def result(self, invocation_id: int) -> Result:
        return self.wait("result", invocation_id).result

    def wait(self, kind: str, invocation_id: int) -> PluginFrame:
        """The next frame of that kind and call; others are kept for later."""
        for index, frame in enumerate(self._kept):
            if is_about(frame, kind, invocation_id):
                return self._kept.pop(index)
        while True:
            frame = self._read()
            if is_about(frame, kind, invocation_id):
                return frame
            self._kept.append(frame)

    def frame(self) -> PluginFrame:
        return self._kept.pop(0) if self._kept else self._read()

    def kept(self, kind: str, invocation_id: int) -> list[PluginFrame]:
        """Frames that were read already and waited for by nobody."""
        return [frame for frame in self._kept if is_about(frame, kind, invocation_id)]

    def rest(self) -> list[PluginFrame]:
        """Everything until the plugin closes its end."""
        frames, self._kept = self._kept, []
        while True:
            try:
                frames.append(self._read())
            except EOFError:
                return frames

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def exit_status(self) -> int:
        return self.process.wait(WAIT_S)

    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def _read(self) -> PluginFrame:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                size, start = _DecodeVarint32(self._buffer, 0)
            except IndexError:
                size, start = sys.maxsize, 0
            if len(self._buffer) >= start + size:
                data, self._buffer = self._buffer[start : start + size], self._buffer[start + size :]
                return PluginFrame.FromString(data)
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise StalledError(self.stderr())
            chunk = os.read(self._out, 65536)
            if not chunk:
                assert not self._buffer, "the stream ended within a frame"
                raise EOFError(self.stderr())
            self._buffer += chunk


def delimited(data: bytes) -> bytes:
    return _VarintBytes(len(data)) + data


def is_about(frame: PluginFrame, kind: str, invocation_id: int) -> bool:
    return frame.WhichOneof("frame") == kind and getattr(frame, kind).invocation_id == invocation_id


def texts(content: Iterable[Content]) -> list[str]:
    return [block.text for block in content]


@contextmanager
def started(arguments: list[str], folder: Path) -> Iterator[PluginClient]:
    """Run a program that speaks the wire; `folder` takes its stderr."""
    stderr = folder / "stderr"
    with (
        stderr.open("wb") as log,
        subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
        ) as process,
    ):
        try:
            yield PluginClient(process, stderr)
        finally:
            process.kill()


@contextmanager
def plugin(folder: Path, entrypoint: str = "kitchen:plugin", *, source: Path = PLUGINS) -> Iterator[PluginClient]:
    """Run a Python plugin the way that the sidecar does, without a sandbox."""
    with started(["-m", "fumehood_sdk.main", entrypoint, str(source)], folder) as client:
        yield client
