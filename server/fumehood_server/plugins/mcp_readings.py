"""Definitions of the reserved tools by which MCP servers are read: ours, and so no part of a pin.

What a plugin's process answers has to fit the output schemas, which bound it as `fumehood_sdk.adapters.mcp.readings`
does: a process that is not the adapter's is refused as any tool is whose output doesn't fit.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.model.mcp_reading import McpReading
from fumehood_server.model.plugin import Kind
from fumehood_server.model.schema import check_schema
from fumehood_server.model.tool import DEFAULT_TIMEOUT_S, ToolDefinition
from fumehood_server.plugins.manifest import Manifest
from fumehood_server.plugins.mcp_tools import server_requires

MAX_LISTED = 4096
MAX_CONTENTS = 1024
MAX_ARGUMENTS = 64
MAX_ARGUMENT_CHARACTERS = 64 * 1024

Schema = dict[str, Any]


def reading_definitions(manifest: Manifest) -> tuple[ToolDefinition, ...]:
    """The reserved tools of a plugin, with what its manifest says of all its tools. None of a kind but `mcp`."""
    if manifest.kind is not Kind.MCP:
        return ()
    return tuple(
        ToolDefinition(
            name=each.value,
            description=_DESCRIPTIONS[each],
            input_schema_json=_inputs()[each],
            output_schema_json=_outputs()[each],
            side_effects=Level.EXTERNAL if manifest.remote else Level.READ,
            requires=server_requires(manifest),
            timeout_s=manifest.timeout_s or DEFAULT_TIMEOUT_S,
            isolation=manifest.isolation or manifest.kind.default_isolation,
            limits=manifest.limits,
        )
        for each in McpReading
    )


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": [*required]}


def _text(most: int, least: int = 0) -> Schema:
    return {"type": "string", "maxLength": most, **({"minLength": least} if least else {})}


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


_URI = _text(8192, 1)
_CURSOR = _text(4096, 1)
_NAME = _text(512)
_MEDIA_TYPE = _text(255)
_TEXTS: Schema = {"title": _NAME, "description": _text(8192)}
_ROLE: Schema = {"enum": ["user", "assistant"]}
_ABOUT: Schema = {
    **_TEXTS,
    "media_type": _MEDIA_TYPE,
    "audience": _list(_ROLE, 2),
    "priority": {"type": "number", "minimum": 0, "maximum": 1},
    "last_modified": _text(64),
}
_SIZE: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_DESCRIPTIONS = {
    McpReading.LIST_RESOURCES: "Lists the server's resources, a page at a time.",
    McpReading.LIST_TEMPLATES: "Lists the server's templates of resources, a page at a time.",
    McpReading.READ_RESOURCE: "Reads a resource of the server.",
    McpReading.LIST_PROMPTS: "Lists the server's prompts, a page at a time.",
    McpReading.GET_PROMPT: "Fills in a prompt of the server.",
}


def _page(key: str, entry: Schema) -> Schema:
    left_out = {"type": "integer", "minimum": 0, "maximum": MAX_LISTED}
    return _object({key: _list(entry, MAX_LISTED), "left_out": left_out}, {"next_cursor": _CURSOR})


@functools.cache
def _inputs() -> dict[McpReading, str]:
    page = _object({}, {"cursor": _CURSOR})
    values = {"type": "object", "additionalProperties": _text(MAX_ARGUMENT_CHARACTERS), "maxProperties": MAX_ARGUMENTS}
    schemas = {
        McpReading.LIST_RESOURCES: page,
        McpReading.LIST_TEMPLATES: page,
        McpReading.READ_RESOURCE: _object({"uri": _URI}),
        McpReading.LIST_PROMPTS: page,
        McpReading.GET_PROMPT: _object({"name": _text(512, 1)}, {"arguments": values}),
    }
    return {reading: check_schema(json.dumps(each), arguments=True) for reading, each in schemas.items()}


@functools.cache
def _outputs() -> dict[McpReading, str]:
    argument = _object({"name": _text(512, 1), "required": {"type": "boolean"}}, _TEXTS)
    content = _object({"uri": _text(8192), "media_type": _MEDIA_TYPE})
    message = _object({"role": _ROLE}, {"uri": _text(8192), "media_type": _MEDIA_TYPE})
    schemas = {
        McpReading.LIST_RESOURCES: _page("resources", _object({"uri": _URI, "name": _NAME}, {**_ABOUT, "size": _SIZE})),
        McpReading.LIST_TEMPLATES: _page("resourceTemplates", _object({"uri_template": _URI, "name": _NAME}, _ABOUT)),
        McpReading.READ_RESOURCE: _object({"contents": _list(content, MAX_CONTENTS)}),
        McpReading.LIST_PROMPTS: _page(
            "prompts", _object({"name": _text(512, 1), "arguments": _list(argument, MAX_ARGUMENTS)}, _TEXTS)
        ),
        McpReading.GET_PROMPT: _object(
            {"messages": _list(message, MAX_CONTENTS)}, {"description": _TEXTS["description"]}
        ),
    }
    return {reading: check_schema(json.dumps(each), arguments=False) for reading, each in schemas.items()}


__all__ = ["reading_definitions"]
