"""The adapter as the process that the sidecar starts, on a real server, and the sidecar's end of its wire."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.v1 import plugin_pb2 as pb
from google.protobuf import proto

BOUND_S = 60.0


class AdapterProcess:
    """One adapter. Invocations are numbered as they are made."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._invocations = 0

    def send(self, frame: pb.HostFrame) -> None:
        assert self._process.stdin is not None
        proto.serialize_length_prefixed(frame, self._process.stdin)  # type: ignore[arg-type] # a buffer
        self._process.stdin.flush()

    def begin(self, tool: str, arguments: str = "{}") -> int:
        """Send a call. Returns its number."""
        self._invocations += 1
        invoke = pb.Invoke(invocation_id=self._invocations, tool=tool, arguments_json=arguments)
        self.send(pb.HostFrame(invoke=invoke))
        return self._invocations

    def read(self) -> pb.PluginFrame | None:
        """The next frame that is no line of the log. None: there is none any more."""
        assert self._process.stdout is not None
        while (frame := proto.parse_length_prefixed(pb.PluginFrame, self._process.stdout)) is not None:  # type: ignore[arg-type] # a buffer
            if not frame.HasField("log"):
                return frame
        return None

    def call(self, tool: str, arguments: str = "{}") -> pb.Result:
        """A call's result. Updates are passed over."""
        number = self.begin(tool, arguments)
        while (frame := self.read()) is not None:
            if frame.HasField("result"):
                assert frame.result.invocation_id == number
                return frame.result
        raise AssertionError(self.last_words())

    def last_words(self) -> str:
        """What it wrote to stderr, once it has ended by itself."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode()


@contextmanager
def adapter_process(folder: Path, code: str) -> Iterator[AdapterProcess]:
    """The adapter until the block ends, greeted. `code` is the server's, which speaks over stdio."""
    (folder / "server.py").write_text(code)
    launch = json.dumps({"command": ["python", str(folder / "server.py")]})
    argv = [sys.executable, "-m", "fumehood_sdk.adapters.mcp.main", launch]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        bound = threading.Timer(BOUND_S, process.kill)
        bound.start()
        made = AdapterProcess(process)
        made.send(pb.HostFrame(hello=pb.Hello(protocol_versions=[1])))
        yield made
        bound.cancel()
        process.kill()
