# ruff: noqa: C901, PLR0911, PLR0912, PTH123 - one look-up of one short file
"""An MCP server of the standard library alone, with resources and prompts. Its URIs say what it does when read."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from typing import Any

STATELESS = os.environ.get("STATELESS", "") == "1"
BARE = os.environ.get("BARE", "") == "1"
"""Whether it has tools alone."""
READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
TOOLS = [
    {"name": "count", "description": "Counts its calls.", "inputSchema": {"type": "object"}, "annotations": READ_ONLY}
]
RESOURCES: list[Any] = [
    {
        "uri": "shelf:text",
        "name": "text",
        "title": "A text",
        "description": "Says hello.",
        "mimeType": "text/plain",
        "size": 5,
        "annotations": {"audience": ["user", "machine"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
    },
    {"uri": "shelf:blob", "name": "blob", "size": -1, "annotations": {"priority": 7}},
    {"name": "without a URI"},
    "no object",
    {"uri": "shelf:" + "x" * 9000, "name": "long"},
    {"uri": "shelf:loud", "name": "n" * 1000, "description": "word. " * 2000},
]
PAGE = 4
calls = 0


class Refused(Exception):  # noqa: N818 - says what happened
    """A JSON-RPC error."""


def contents(uri: str) -> dict[str, Any]:
    what, _, rest = uri.removeprefix("shelf:").partition("?")
    if what == "text":
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "hello"}]}
    if what == "blob":
        blob = base64.b64encode(b"\x00\x01").decode()
        return {"contents": [{"uri": uri, "blob": blob}, {"uri": uri + "#2", "text": ""}]}
    if what == "none":
        return {"contents": []}
    if what == "file":
        with open(os.path.expanduser(rest)) as file:  # noqa: PTH111
            return {"contents": [{"uri": uri, "text": file.read()}]}
    if what == "write":
        with open(rest, "w") as file:
            file.write("written")
        return {"contents": []}
    if what == "dial":
        host, port = rest.split(":")
        socket.create_connection((host, int(port)), 2).close()
        return {"contents": []}
    if what == "huge":
        return {"contents": [{"uri": uri, "text": "x" * 3 * 1024 * 1024}]}
    if what == "many":
        return {"contents": [{"uri": uri, "text": ""}] * 5000}
    if what == "malformed":
        return {"contents": [{"uri": uri, "blob": "not base64!"}]}
    if what == "without":
        return {"contents": [{"text": "from nowhere"}]}
    if what == "roots" and STATELESS:
        return {"resultType": "input_required", "inputRequests": {"it": {"method": "roots/list"}}, "requestState": "s"}
    if what == "model" and STATELESS:
        return {"resultType": "input_required", "inputRequests": {"it": {"method": "sampling/createMessage"}}}
    if what == "die":
        os._exit(7)
    if what == "silence":
        raise InterruptedError
    raise Refused(-32002, f"no resource {uri}")


def prompt(name: str, given: dict[str, str]) -> dict[str, Any]:
    if name == "greet":
        if "STRICT" in os.environ and "whom" not in given:
            raise Refused(-32603, "Internal server error")
        resource = {"uri": "shelf:text", "mimeType": "text/plain", "text": "hello"}
        link = {"type": "resource_link", "uri": "shelf:blob", "name": "blob"}
        return {
            "description": "Greets.",
            "messages": [
                {"role": "user", "content": {"type": "text", "text": f"Greet {given.get('whom', 'nobody')}."}},
                {"role": "assistant", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}},
                {"role": "user", "content": {"type": "resource", "resource": resource}},
                {"role": "user", "content": link},
            ],
        }
    if name == "wrong_role":
        return {"messages": [{"role": "system", "content": {"type": "text", "text": "obey"}}]}
    raise Refused(-32602, f"no prompt {name}")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    global calls  # noqa: PLW0603
    capabilities: dict[str, Any] = {"tools": {}, **({} if BARE else {"resources": {}, "prompts": {}})}
    if method == "server/discover" and STATELESS:
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    if method == "initialize" and not STATELESS:
        info = {"name": "shelf", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        calls += 1
        return {"content": [{"type": "text", "text": str(calls)}]}
    if method == "resources/list":
        if params.get("cursor") == "flood":
            return {"resources": [{"uri": "shelf:text", "name": "text"}] * 5000}
        if params.get("cursor") in ("again", "odd"):
            return {
                "resources": [],
                "nextCursor": "again",
                **({"resultType": "odd"} if params["cursor"] == "odd" else {}),
            }
        start = int(params.get("cursor") or 0)
        following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(RESOURCES) else {}
        return {"resources": RESOURCES[start : start + PAGE], **following}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "shelf:file?{path}", "name": "file"}]}
    if method == "resources/read":
        if "inputResponses" in params:
            return {"contents": [{"uri": params["uri"], "text": json.dumps(params["inputResponses"]["it"])}]}
        return contents(params["uri"])
    if method == "prompts/list":
        arguments = [{"name": "whom", "description": "Whom to greet.", "required": True}]
        return {"prompts": [{"name": "greet", "description": "Greets.", "arguments": arguments}, {"title": "nameless"}]}
    if method == "prompts/get":
        return prompt(params["name"], params.get("arguments") or {})
    raise Refused(-32601, f"no method {method}")


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        said: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            complete = {"resultType": "complete"} if STATELESS else {}
            said["result"] = {**complete, **answer(message["method"], message.get("params") or {})}
        except InterruptedError:
            continue
        except Refused as error:
            said["error"] = {"code": error.args[0], "message": error.args[1]}
        except OSError as error:
            said["error"] = {"code": -32000, "message": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


main()
