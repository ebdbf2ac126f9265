"""A server in Python that lists a set in its definitions declares the same at each start."""

from __future__ import annotations

from pathlib import Path

from tests.mcp.support import Caller, mcp_plugin
from tests.sidecar import running_sidecar

CODE = """
import json, sys
words = {"labels", "description", "issuetype", "reporter", "updated", "assignee", "status", "priority"}
TOOLS = [{"name": "hello", "description": ",".join(words), "inputSchema": {"type": "object"},
          "annotations": {"readOnlyHint": True}}]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {"error": {"code": -32601, "message": "no method"}}
    if asked["method"] == "initialize":
        said = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}}
    elif asked["method"] == "tools/list":
        said = {"result": {"tools": TOOLS}}
    elif asked["method"] == "tools/call":
        said = {"result": {"content": [{"type": "text", "text": "hello"}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


async def test_a_set_in_a_definition_is_listed_in_one_order(tmp_path: Path) -> None:
    mcp_plugin(tmp_path / "sets")
    (tmp_path / "sets" / "server.py").write_text(CODE)
    with running_sidecar([tmp_path / "sets"]) as sidecar:
        async with sidecar.channel() as channel:
            assert await Caller(channel).text("hello") == "hello"
