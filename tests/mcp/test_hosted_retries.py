"""A hosted server that dies in a call: the call is made again where the operator says that it may, on no hint alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.mcp.support import mcp_plugin
from tests.sidecar import running_sidecar

BOUND_S = 60
CODE = """
import json, os, sys
TOOL = {
    "name": "put",
    "description": "Writes one line, and takes its server down with the first.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "annotations": {"readOnlyHint": False, "openWorldHint": False, "idempotentHint": True},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {"error": {"code": -32601, "message": "no method"}}
    if asked["method"] == "initialize":
        said = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}}
    elif asked["method"] == "tools/list":
        said = {"result": {"tools": [TOOL]}}
    elif asked["method"] == "tools/call":
        path = asked["params"]["arguments"]["path"]
        is_first = not os.path.exists(path)
        with open(path, "a") as file:
            file.write("put\\n")
        if is_first:
            os._exit(3)
        said = {"result": {"content": [{"type": "text", "text": "there"}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


@pytest.mark.parametrize(
    ("by_operator", "attempts", "code"),
    [("", 1, "TOOL_OUTCOME_UNKNOWN"), ("idempotent = false", 1, "TOOL_OUTCOME_UNKNOWN"), ("idempotent = true", 2, "")],
    ids=["by the hint alone", "by the operator's no", "by the operator's yes"],
)
async def test_call_is_made_again_only_where_the_operator_says_that_it_may(
    tmp_path: Path, by_operator: str, attempts: int, code: str
) -> None:
    folder, writable = mcp_plugin(tmp_path / "shelf"), tmp_path / "writable"
    (folder / "server.py").write_text(CODE)
    writable.mkdir()
    writable.chmod(0o777)  # a root-started sidecar gives plugins ids of their own
    grants = f"""
max_side_effects = "write"
write = ["{writable}"]
[plugin.tools.put]
permission = "allow"
{by_operator}
"""
    with running_sidecar([(folder, grants)]) as sidecar:
        async with sidecar.channel() as channel:
            request = pb.CallToolRequest(
                tool="put",
                arguments_json=json.dumps({"path": str(writable / "lines")}),
                retry=pb.RetryPolicy(max_attempts=3),
            )
            result = (await ToolServiceStub(channel).CallTool(request, timeout=BOUND_S)).result
    assert (result.attempts, result.error.code) == (attempts, code), result.error
    assert (writable / "lines").read_text() == "put\n" * attempts
