"""A server's page of thousands of entries, which the sidecar turns into a message in a thread."""

from __future__ import annotations

from pathlib import Path

from fumehood.v1 import mcp_service_pb2 as pb
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub
from fumehood_server.rpc.mcp_service import INLINE_CHARS

from tests.mcp.support import mcp_plugin
from tests.sidecar import running_sidecar

BOUND_S = 60.0
PROMPTS = 200
ARGUMENTS = 64
SERVER = f"""
import json, sys
PROMPTS = [
    {{"name": f"prompt-{{i}}", "arguments": [{{"name": f"a{{j}}"}} for j in range({ARGUMENTS})]}}
    for i in range({PROMPTS})
]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {{"error": {{"code": -32601, "message": "Method not found"}}}}
    if asked["method"] == "initialize":
        said = {{"result": {{"protocolVersion": "2025-11-25", "capabilities": {{"prompts": {{}}}}}}}}
    elif asked["method"] == "prompts/list":
        said = {{"result": {{"prompts": PROMPTS}}}}
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], **said}}), flush=True)
"""


async def test_page_of_many_prompts_comes_whole(tmp_path: Path) -> None:
    plugin = mcp_plugin(tmp_path / "plugin")
    (plugin / "server.py").write_text(SERVER)
    with running_sidecar([(plugin, 'max_side_effects = "external"')]) as sidecar:
        async with sidecar.channel() as channel:
            request = pb.ListPromptsRequest(plugin="plugin")
            page = await McpServiceStub(channel).ListPrompts(request, timeout=BOUND_S)
    assert not page.reading.HasField("error"), page.reading
    assert page.ByteSize() > INLINE_CHARS
    assert [each.name for each in page.prompts] == [f"prompt-{number}" for number in range(PROMPTS)]
    assert {len(each.arguments) for each in page.prompts} == {ARGUMENTS}
    assert page.reading.call_id
