# ruff: noqa: PLR0911 - one look-up of one short file
"""An MCP server of the standard library alone, whose tools show content: all that can be said of it, and too much."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
TIME = "2026-01-01T00:00:00Z"
ALL = {"audience": ["assistant", "user"], "priority": 0.5, "lastModified": TIME}
ICON = {"src": "data:image/png;base64,aGk=", "mimeType": "image/png", "sizes": ["8x8"], "theme": "dark"}
LINK = {
    "type": "resource_link",
    "uri": "show:text",
    "name": "text",
    "title": "A text",
    "description": "Says hello.",
    "mimeType": "text/plain",
    "size": 5,
    "icons": [ICON],
    "_meta": {"show/kind": {"of": ["text"]}},
    "annotations": ALL,
}
TEXT = {"type": "resource", "resource": {"uri": "show:text", "mimeType": "text/markdown", "text": "*hello*"}}
BLOB = {"type": "resource", "resource": {"uri": "show:blob", "mimeType": "image/png", "blob": "aGk="}}
BROKEN = {"type": "image", "data": "not base64!", "mimeType": "image/png"}
FAILED = {"type": "text", "text": "it went wrong"}


def deep(levels: int) -> Any:
    return {"in": deep(levels - 1)} if levels else {}


SHOWN: dict[str, dict[str, Any]] = {
    "all": {
        "content": [
            {"type": "text", "text": "words", "annotations": ALL},
            {"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": {"audience": ["user"]}},
            {"type": "audio", "data": "aG8=", "mimeType": "audio/wav", "annotations": {"priority": 1}},
            {**TEXT, "annotations": {"priority": 0}},
            BLOB,
            LINK,
        ]
    },
    "failed": {"isError": True, "content": [FAILED, BLOB, LINK, {**TEXT, "annotations": ALL}]},
    "failed_broken": {"isError": True, "content": [FAILED, BROKEN]},
    "failed_large": {"isError": True, "content": [FAILED, {"type": "text", "text": "x" * 3 * 1024 * 1024}]},
    "failed_many": {"isError": True, "content": [FAILED] * 2000},
    "wild": {
        "content": [
            {
                "type": "text",
                "text": "a",
                "annotations": {"audience": ["machine", 7], "priority": 7, "lastModified": "x" * 65},
            },
            {"type": "text", "text": "b", "annotations": {"priority": True, "lastModified": "now\x1b[2J"}},
            {"type": "text", "text": "c", "annotations": "urgent"},
            {"type": "resource", "resource": {"uri": "show:\x1b[2J", "text": "d"}},
            {"type": "resource", "resource": {"uri": "show:\ud800", "text": "e"}},
            {"type": "resource", "resource": {"uri": "show:" + "x" * 9000, "text": "f"}},
            {"type": "resource", "resource": {"text": "g", "mimeType": "x" * 300}},
            {"type": "resource_link", "name": "h"},
            {
                "type": "resource_link",
                "uri": "show:wild",
                "title": 7,
                "size": -1,
                "icons": [{"sizes": "8x8"}, {"src": "show:icon", "sizes": [8], "theme": "loud"}],
                "_meta": deep(60),
            },
            {"type": "hologram", "beams": 3},
        ]
    },
    "secret": {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "show:" + os.environ.get("TOKEN", ""), "text": os.environ.get("TOKEN", "")},
                "annotations": {"lastModified": os.environ.get("TOKEN", "")},
            }
        ]
    },
    "most": {
        "content": [
            {"type": "image", "data": "aGlo" * 20, "mimeType": "image/png", "annotations": ALL} for _ in range(1024)
        ]
    },
    "long_uris": {
        "content": [{"type": "resource", "resource": {"uri": "show:" + "x" * 8000, "text": ""}} for _ in range(200)]
    },
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "showing", "version": "1"}
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        about = {"description": "Shows.", "inputSchema": {"type": "object"}, "annotations": READ_ONLY}
        return {"tools": [{"name": name, **about} for name in SHOWN]}
    if method == "tools/call":
        return SHOWN[params["name"]]
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": "hello"}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "show", "description": "Shows."}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": each} for each in (LINK, {**TEXT, "annotations": ALL})]}
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        said: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        said |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "no"}}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
