"""An MCP server of 2026-07-28, of the standard library alone, whose tool has a name for what it asks."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "test_input_required_result_elicitation",
    "description": "Greets whoever sits at the client.",
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True},
}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ASKED = {"method": "elicitation/create", "params": {"message": "What is your name?", "requestedSchema": FORM}}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method != "tools/call":
        return None
    answer = params.get("inputResponses", {}).get("user_name")
    if answer is None:
        return {"resultType": "input_required", "inputRequests": {"user_name": ASKED}}
    return {"content": [{"type": "text", "text": f"Hello, {answer.get('content', {}).get('name')}!"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = result_of(message["method"], message.get("params") or {})
    if result is None:
        said: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
    else:
        said = {"result": {"resultType": "complete", **result}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
    sys.stdout.flush()
