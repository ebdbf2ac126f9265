"""A server over HTTP tells nobody that its tools have changed: where calls come, its list is looked at now and then."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import plugin_pb2 as pb
from fumehood_sdk.adapters.mcp import engine, relisting
from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.definitions import encode_definitions
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.negotiation import list_tools, negotiate
from fumehood_sdk.adapters.mcp.server_process import ServerProcess
from fumehood_sdk.wire.framing import FrameReader
from google.protobuf import proto

CODE = """
import json, sys
lists = 0
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        said["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    elif asked["method"] == "tools/list":
        lists += 1
        words = [f"Listed {lists} times.", "Always says this."]
        said["result"] = {"tools": [{"name": n, "description": d} for n, d in zip(("changes", "stays"), words)]}
    elif asked["method"] == "tools/call":
        said["result"] = {"content": [{"type": "text", "text": asked["params"]["name"]}]}
    else:
        said["error"] = {"code": -32601, "message": "no method"}
    print(json.dumps(said), flush=True)
"""


class Engine:
    """An engine in a thread, on a real server, and the sidecar's end of its wire."""

    def __init__(self, folder: Path, *, is_remote: bool) -> None:
        (folder / "server.py").write_text(CODE)
        self._process = ServerProcess([sys.executable, str(folder / "server.py")], os.environ)
        connection = ServerConnection(self._process, max_line_bytes=1 << 20, roots="{}", log=lambda _: None)
        session = negotiate(connection)
        session.is_remote = is_remote
        tools = encode_definitions(list_tools(connection, session), "test")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        frames = FrameReader(lambda size: os.read(theirs_in, size), 1 << 20)
        self._engine = engine.McpEngine(
            frames, (theirs_in, theirs_out), connection, session, tools, max_calls=8, roots="{}", log=LogLines()
        )
        self._calls = 0
        self._thread = threading.Thread(target=self._engine.run)
        self._thread.start()

    def call(self, tool: str) -> pb.Result:
        """A call's result. Lines of the log are passed over."""
        self._calls += 1
        frame = pb.HostFrame(invoke=pb.Invoke(invocation_id=self._calls, tool=tool, arguments_json="{}"))
        proto.serialize_length_prefixed(frame, self._out)
        self._out.flush()
        while (answer := proto.parse_length_prefixed(pb.PluginFrame, self._in)) is not None:
            if answer.HasField("result"):
                return answer.result
        raise AssertionError("the engine has ended")

    def end(self) -> None:
        self._out.close()
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._in.close()
        self._process.kill()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relisting, "REMOTE_RELIST_S", 0.0)


def running(folder: Path, *, is_remote: bool) -> Iterator[Engine]:
    made = Engine(folder, is_remote=is_remote)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.usefixtures("at_once")
def test_changed_tool_is_refused_by_the_next_look_and_the_other_is_called(tmp_path: Path) -> None:
    for made in running(tmp_path, is_remote=True):
        assert made.call("stays").content[0].text == "stays"
        assert made.call("changes").error.reason == "definition_changed"
        assert made.call("stays").content[0].text == "stays"


@pytest.mark.usefixtures("at_once")
def test_list_of_a_server_beside_the_adapter_is_looked_at_when_it_says_so(tmp_path: Path) -> None:
    for made in running(tmp_path, is_remote=False):
        assert made.call("changes").content[0].text == "changes"
