"""`notifications/progress` of a server whose numbers are none."""

from __future__ import annotations

from pathlib import Path

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
        params = {"progressToken": got["params"]["_meta"]["progressToken"], "message": "counting"}
        params |= got["params"]["arguments"]
        send({"method": "notifications/progress", "params": params})
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
