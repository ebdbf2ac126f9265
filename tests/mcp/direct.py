"""The adapter's engine in a thread, on a real server, and the sidecar's end of its wire in the test's hands."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.v1 import plugin_pb2 as pb
from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.definitions import encode_definitions
from fumehood_sdk.adapters.mcp.engine import McpEngine
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.negotiation import list_tools, negotiate
from fumehood_sdk.adapters.mcp.server_process import ServerProcess
from fumehood_sdk.wire.framing import FrameReader
from google.protobuf import proto


class DirectEngine:
    """One server's. Invocations are numbered as they are made."""

    def __init__(self, folder: Path, code: str, *, is_remote: bool = False) -> None:
        """`code` is the server's, which speaks over stdio. `is_remote`: to treat it as one over HTTP."""
        (folder / "server.py").write_text(code)
        self._process = ServerProcess([sys.executable, str(folder / "server.py")], os.environ)
        connection = ServerConnection(self._process, max_line_bytes=1 << 20, roots="{}", log=lambda _: None)
        session = negotiate(connection)
        session.is_remote = is_remote
        tools = encode_definitions(list_tools(connection, session), session.server)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self._theirs = (theirs_in, theirs_out)
        frames = FrameReader(lambda size: os.read(theirs_in, size), 1 << 20)
        engine = McpEngine(frames, self._theirs, connection, session, tools, max_calls=8, roots="{}", log=LogLines())
        self._invocations = 0
        self.lines: list[str] = []
        """Of the plugin's log, as far as frames have been read."""
        self._thread = threading.Thread(target=engine.run)
        self._thread.start()

    def send(self, frame: pb.HostFrame) -> None:
        proto.serialize_length_prefixed(frame, self._out)
        self._out.flush()

    def begin(self, tool: str, arguments: str = "{}", **more: str) -> int:
        """Send a call. Returns its number."""
        self._invocations += 1
        invoke = pb.Invoke(invocation_id=self._invocations, tool=tool, arguments_json=arguments, **more)  # type: ignore[arg-type] # text
        self.send(pb.HostFrame(invoke=invoke))
        return self._invocations

    def read(self) -> pb.PluginFrame:
        """The next frame that is no line of the log."""
        while (frame := proto.parse_length_prefixed(pb.PluginFrame, self._in)) is not None:
            if not frame.HasField("log"):
                return frame
            self.lines.append(frame.log.message)
        raise AssertionError("the engine has ended")

    def call(self, tool: str, arguments: str = "{}", **more: str) -> pb.Result:
        """A call's result. Updates are passed over."""
        number = self.begin(tool, arguments, **more)
        while True:
            frame = self.read()
            if frame.HasField("result"):
                assert frame.result.invocation_id == number
                return frame.result

    def give_up(self, invocation_id: int) -> pb.Result:
        """Cancel a call, and wait for its server's answer no more."""
        self.send(pb.HostFrame(cancel=pb.Cancel(invocation_id=invocation_id, reason=pb.CANCEL_REASON_CALLER)))
        frame = self.read()
        assert frame.result.invocation_id == invocation_id, frame
        return frame.result

    def end(self) -> None:
        self._out.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._in.close()
        for fd in self._theirs:
            os.close(fd)
        self._process.kill()
        os.close(self._process.stdin)
        os.close(self._process.stdout)


@contextmanager
def direct_engine(folder: Path, code: str, *, is_remote: bool = False) -> Iterator[DirectEngine]:
    """The engine until the block ends."""
    made = DirectEngine(folder, code, is_remote=is_remote)
    try:
        yield made
    finally:
        made.end()
