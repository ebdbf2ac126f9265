"""Structured content that doesn't fit the output schema of its own tool, and an output schema without any."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mcp.support import Caller, mcp_plugin, reason
from tests.sidecar import running_sidecar

CODE = """
import json, sys
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
STRUCTURED = {
    "fits": {"structuredContent": {"count": 1}},
    "misfits": {"structuredContent": {"count": "one"}},
    "without": {},
    "fails": {"isError": True},
}
READS = {"readOnlyHint": True}
for line in sys.stdin:
    asked = json.loads(line)
    method = asked["method"]
    if method == "initialize":
        said = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}}
    elif method == "tools/list":
        tools = [{"name": n, "outputSchema": SCHEMA, "annotations": READS} for n in STRUCTURED]
        said = {"result": {"tools": tools}}
    elif method == "tools/call":
        content = [{"type": "text", "text": "what it says"}]
        said = {"result": {"content": content, **STRUCTURED[asked["params"]["name"]]}}
    else:
        said = {"error": {"code": -32601, "message": "no method"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


async def test_result_that_breaks_its_output_schema_is_an_error_and_is_not_shown(tmp_path: Path) -> None:
    plugin = mcp_plugin(tmp_path / "shapes")
    (plugin / "server.py").write_text(CODE)
    with running_sidecar([plugin]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            result = await caller.call("fits")
            assert (result.content[0].text, json.loads(result.details_json)) == ("what it says", {"count": 1})
            assert reason(await caller.call("fails")) == "tool_error", "an error of its own needs none"
            for tool, pointer in (("misfits", "/count"), ("without", "")):
                result = await caller.call(tool)
                assert result.error.code == "CONSTRAINT_SCHEMA_INVALID", result
                assert json.loads(result.error.details_json)["output"][0]["pointer"] == pointer
                assert not result.details_json
                assert [each.text for each in result.content] == [result.error.message]
