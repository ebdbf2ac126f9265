"""`notifications/progress`: numbers that are none, and more of it than is told."""

from __future__ import annotations

import io
from pathlib import Path

from fumehood.v1 import plugin_pb2 as pb
from fumehood_sdk.adapters.mcp.calls import McpCall
from fumehood_sdk.adapters.mcp.progress import UPDATE_INTERVAL_S, progress_frames, take_kept
from google.protobuf import proto

from tests.mcp.direct import direct_engine

CODE = """
import json, sys
def send(said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    got = json.loads(line)
    method, number = got["method"], got.get("id")
    if method == "initialize":
        send({"id": number, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": [{"name": "count"}]}})
    elif method == "tools/call":
        arguments = got["params"]["arguments"]
        said = []
        for step in range(arguments.pop("steps", 1)):
            params = {"progressToken": got["params"]["_meta"]["progressToken"], "message": "counting"}
            params |= arguments or {"progress": step + 1, "message": f"step {step + 1}"}
            said.append({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        sys.stdout.write("".join(json.dumps(each) + "\\n" for each in said))
        send({"id": number, "result": {"content": []}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no method"}})
"""


def test_number_that_is_not_finite_is_not_told_and_the_rest_is(tmp_path: Path) -> None:
    with direct_engine(tmp_path, CODE) as engine:
        for number in ("NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, '"1"', "true", "null", "2", "2.5"):
            engine.begin("count", f'{{"progress": {number}, "total": {number}}}')
            update = engine.read().update
            told = number in ("2", "2.5")
            assert update.message == "counting"
            assert (update.HasField("progress"), update.HasField("total")) == (told, told), number
            assert engine.read().HasField("result")


def test_last_step_of_a_burst_is_told_before_the_result(tmp_path: Path) -> None:
    with direct_engine(tmp_path, CODE) as engine:
        engine.begin("count", '{"steps": 10}')
        told = []
        while (frame := engine.read()).HasField("update"):
            told.append((frame.update.message, frame.update.progress))
        assert frame.HasField("result")
        assert (told[0], told[-1]) == (("step 1", 1), ("step 10", 10))
        assert told == sorted(told, key=lambda each: each[1])


def test_newest_that_came_too_soon_is_told_once_and_before_what_follows() -> None:
    call = McpCall(1, b"", b"")

    def told(frames: bytes) -> list[str]:
        read, found = io.BytesIO(frames), []
        while (frame := proto.parse_length_prefixed(pb.PluginFrame, read)) is not None:
            found.append(frame.update.message)
        return found

    def take(message: str, now: float) -> list[str]:
        return told(progress_frames(call, {"message": message}, now))

    soon, later = UPDATE_INTERVAL_S / 2, 2 * UPDATE_INTERVAL_S
    assert [take("a", 0), take("b", soon), take("c", soon)] == [["a"], [], []]
    assert [take("d", later), take("e", later + soon)] == [["c", "d"], []]
    assert [told(take_kept(call)), told(take_kept(call))] == [["e"], []]
