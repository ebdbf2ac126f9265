"""The adapter's engine in a thread, on a real server, and the sidecar's end of its wire in the test's hands."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fumehood.v1 import plugin_pb2 as pb
from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.definitions import encode_definitions
from fumehood_sdk.adapters.mcp.engine import McpEngine
from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_sdk.adapters.mcp.listing import list_tools
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.negotiation import negotiate
from fumehood_sdk.adapters.mcp.remote.settings import VARIABLE
from fumehood_sdk.adapters.mcp.server_process import ServerProcess
from fumehood_sdk.wire.framing import FrameReader
from google.protobuf import proto


class DirectEngine:
    """One server's. Invocations are numbered as they are made."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], *, is_remote: bool) -> None:
        """`argv` is what speaks over stdio: a server, or the process that speaks to one over HTTP."""
        self._process = ServerProcess(argv, environment)
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
        self.fault = ""
        """Why the engine ended by itself."""
        self._thread = threading.Thread(target=self._run, args=(engine,))
        self._thread.start()

    def _run(self, engine: McpEngine) -> None:
        try:
            engine.run()
        except ServerFault as fault:
            self.fault = str(fault)
        finally:
            for fd in self._theirs:
                os.close(fd)

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
        self._thread.join(60)
        raise AssertionError(f"the engine has ended: {self.fault}")

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
        self._process.kill()
        os.close(self._process.stdin)
        os.close(self._process.stdout)


@contextmanager
def direct_engine(folder: Path, code: str, *, is_remote: bool = False) -> Iterator[DirectEngine]:
    """The engine until the block ends. `code` is the server's. `is_remote`: to treat it as one over HTTP."""
    (folder / "server.py").write_text(code)
    with _until_the_end(
        DirectEngine([sys.executable, str(folder / "server.py")], os.environ, is_remote=is_remote)
    ) as made:
        yield made


@contextmanager
def remote_engine(port: int) -> Iterator[DirectEngine]:
    """Likewise, on a server over HTTP of this machine, which is its own proxy."""
    where = f"http://127.0.0.1:{port}"
    settings = {"url": f"{where}/mcp", "authorities": "", "headers": {}, "max_message_bytes": 1 << 20}
    environment = {**os.environ, "http_proxy": where, VARIABLE: json.dumps(settings)}
    argv = [sys.executable, "-m", "fumehood_sdk.adapters.mcp.remote.main"]
    with _until_the_end(DirectEngine(argv, environment, is_remote=True)) as made:
        yield made


@contextmanager
def _until_the_end(made: DirectEngine) -> Iterator[DirectEngine]:
    try:
        yield made
    finally:
        made.end()
