"""`Mcp-Param-*` headers of a tool's marked arguments: what routes by them is told no other value than the tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .support import modern, request, url_of

SERVER = """
import json, sys

REGION = {"type": "string", "x-mcp-header": "Region"}
DEEP = {"type": "object", "properties": {"b": {"type": "object", "properties": {"region": REGION}}}}
PLAIN = {"type": "string"}
TOOLS = [
    {"name": name, "description": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}}
    for name, schema in {
        "flat": {"type": "object", "properties": {"region": REGION}},
        "deep": {"type": "object", "properties": {"a": DEEP}},
        "plain": {"type": "object", "properties": {"region": PLAIN}},
    }.items()
]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "routed", "version": "1"}},
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments"))}]},
    }.get(message["method"])
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
MANIFEST = '[plugin]\nname = "routed"\nversion = "1.0.0"\nkind = "mcp"\ncommand = ["python", "server.py"]\n'
TABLE = (
    '[mcp]\nlisten = "127.0.0.1:0"\n[[caller]]\nname = "all"\ntools = ["*"]\n[[caller]]\nname = "none"\ntools = ["x"]\n'
)
HEADER_MISMATCH = -32020


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder: Path = tmp_path_factory.mktemp("routed")
    (folder / "plugin.toml").write_text(MANIFEST)
    (folder / "server.py").write_text(SERVER)
    with running_sidecar([folder], more=TABLE) as running:
        running.logged(event="mcp_serving")
        yield running


def called(sidecar: Sidecar, caller: str, tool: str, arguments: dict[str, Any], **headers: str) -> tuple[int, Any]:
    """HTTP's status, and the error's code or the arguments that the tool got. Nobody lists tools."""
    body, shown = modern("tools/call", name=tool, arguments=arguments)
    shown["Authorization"] = f"Bearer {token_of(sidecar.folder, caller)}"
    status, _, answer = request(url_of(sidecar), body=body, **shown, **headers)
    found = json.loads(answer)
    if "error" in found:
        return status, found["error"]["code"]
    result = found["result"]
    return status, result["_meta"]["fumehood/error"]["code"] if result["isError"] else json.loads(
        result["content"][0]["text"]
    )


def test_header_that_differs_from_its_argument_is_refused_also_where_nobody_has_listed_tools(sidecar: Sidecar) -> None:
    refused = (400, HEADER_MISMATCH)
    flat, deep = {"region": "eu"}, {"a": {"b": {"region": "eu"}}}
    for tool, arguments, empty in (("flat", flat, {}), ("deep", deep, {"a": {}})):
        assert called(sidecar, "all", tool, arguments, Mcp_Param_Region="us") == refused, tool
        assert called(sidecar, "all", tool, arguments) == refused, tool
        assert called(sidecar, "all", tool, empty, Mcp_Param_Region="eu") == refused, tool
        assert called(sidecar, "all", tool, arguments, Mcp_Param_Region="eu") == (200, arguments), tool
        assert called(sidecar, "all", tool, arguments, Mcp_Param_Region="=?base64?ZXU=?=") == (200, arguments), tool
        assert called(sidecar, "all", tool, empty) == (200, empty), tool
    assert called(sidecar, "all", "plain", flat, Mcp_Param_Region="us") == (200, flat), "control: it marks nothing"


def test_caller_learns_nothing_of_a_tool_that_it_may_not_call(sidecar: Sidecar) -> None:
    assert called(sidecar, "all", "flat", {"region": "eu"}, Mcp_Param_Region="us") == (400, HEADER_MISMATCH)
    found = called(sidecar, "none", "flat", {"region": "eu"}, Mcp_Param_Region="us")
    assert found == called(sidecar, "none", "flat", {"region": "eu"}, Mcp_Param_Region="eu")
    assert found[1] != HEADER_MISMATCH
