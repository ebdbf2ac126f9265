"""Header fields that repeat what a message says (revision 2026-07-28): method, name, and marked arguments of tools."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_KEYWORD = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_PLAIN = re.compile(r"[\x20-\x7e]*")
_WRAPPED = re.compile(r"=\?base64\?.*\?=")
_MAX_DEPTH = 8
_MAX_MARKED = 64
"""Arguments of one tool that are repeated."""
_MAX_TOOLS = 1024

Path = tuple[str, ...]


class RoutingHeaders:
    """Fields for each message. It has to see what `tools/list` returns, which says which arguments are marked."""

    __slots__ = ("_marked",)

    def __init__(self) -> None:
        """No tool is known."""
        self._marked: dict[str, dict[Path, str]] = {}

    def learn(self, result: Mapping[str, Any]) -> None:
        """Take what a page of tools marks."""
        tools = result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if isinstance(name, str) and len(self._marked) < _MAX_TOOLS:
                self._marked[name] = dict(_marks(tool.get("inputSchema"), ()))

    def of(self, message: Mapping[str, Any]) -> dict[str, str]:
        """The fields for a message of the adapter's. None for one of an older revision."""
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if not isinstance(params, dict) or not isinstance(version, str):
            return {}
        method = message.get("method")
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": str(method)}
        name = params.get(_NAMES.get(str(method), ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = _encoded(name)
            if method == "tools/call":
                for path, token in self._marked.get(name, {}).items():
                    text = _text(_at(params.get("arguments"), path))
                    if text is not None:
                        headers[f"Mcp-Param-{token}"] = _encoded(text)
        return headers


def _marks(schema: object, path: Path) -> Iterator[tuple[Path, str]]:
    """The properties of a schema that are marked, with their tokens."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _MAX_DEPTH:
        return
    for key, value in list(properties.items())[:_MAX_MARKED]:
        token = value.get(_KEYWORD) if isinstance(value, dict) else None
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            yield (*path, key), token
        yield from _marks(value, (*path, key))


def _at(arguments: object, path: Path) -> object:
    for key in path:
        arguments = arguments.get(key) if isinstance(arguments, dict) else None
    return arguments


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _encoded(text: str) -> str:
    if _PLAIN.fullmatch(text) and text == text.strip() and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
