"""Who may read resources and prompts: the right to a reading is the right to call its reserved tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood.v1 import mcp_service_pb2 as pb
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub

from tests.callers.support import token_of
from tests.mcp.test_readings import shelf
from tests.sidecar import running_sidecar

CALLERS = """
[[caller]]
name = "reader"
tools = ["shelf/resources/*"]

[[caller]]
name = "prompter"
tools = ["*/prompts/*"]

[[caller]]
name = "caller"
tools = ["count"]

[[caller]]
name = "all"
tools = ["*"]
"""
RESOURCES = ["resources/list", "resources/templates/list", "resources/read"]
PROMPTS = ["prompts/list", "prompts/get"]


@pytest.mark.parametrize(
    ("name", "methods"),
    [("reader", RESOURCES), ("prompter", PROMPTS), ("caller", []), ("all", RESOURCES + PROMPTS)],
)
async def test_caller_reads_what_its_rules_name_and_nothing_else(tmp_path: Path, name: str, methods: list[str]) -> None:
    with running_sidecar([shelf(tmp_path / "shelf")], server='listen = ["127.0.0.1:0"]', more=CALLERS) as sidecar:
        shown = (("authorization", f"Bearer {token_of(sidecar.folder, name)}"),)
        async with sidecar.channel() as channel:
            mcp = McpServiceStub(channel)
            servers = (await mcp.ListMcpServers(pb.ListMcpServersRequest(), metadata=shown)).servers
            assert [known.method for each in servers for known in each.methods] == methods
            resource = pb.ReadResourceRequest(plugin="shelf", uri="shelf:text")
            prompt = pb.GetPromptRequest(plugin="shelf", name="greet")
            read, got = (
                (await mcp.ReadResource(resource, metadata=shown)).reading,
                (await mcp.GetPrompt(prompt, metadata=shown)).reading,
            )
            for reading, method in ((read, "resources/read"), (got, "prompts/get")):
                if method in methods:
                    assert not reading.HasField("error"), reading.error
                else:
                    assert reading.error.code == "TOOL_DENIED"
                    assert json.loads(reading.error.details_json)["reason"] == "caller_denied"
