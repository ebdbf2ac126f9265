"""Tool definitions in the JSON shapes that model APIs take: OpenAI, Anthropic, Gemini, and the Model Context Protocol.

Sources: OpenAI "Function calling" (Chat Completions and Responses), Anthropic "Tool use", Google's
`FunctionDeclaration` (`parametersJsonSchema`), and `Tool` of the MCP schema of 2025-11-25. Schemas stand in each as the
author's, as canonical JSON, so that the same tool is the same text everywhere and a provider's prompt cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sandbox import Level

from fumehood_server.model.plugin import RegisteredTool

_Shape = dict[str, Any]


def tool_json(tool: RegisteredTool, tool_format: pb.ToolFormat.ValueType) -> str:
    """One tool as JSON.

    Raises:
        KeyError: there is no such format.
    """
    return orjson.dumps(_FORMATS[tool_format](tool)).decode()


def is_known(tool_format: int) -> bool:
    """Whether there is such a format."""
    return tool_format in _FORMATS


def _openai(tool: RegisteredTool) -> _Shape:
    function = {"name": tool.name, "description": tool.definition.description, "parameters": _input(tool)}
    return {"type": "function", "function": function}


def _openai_responses(tool: RegisteredTool) -> _Shape:
    # Without "strict": false the Responses API has schemas refused that it can't enforce while it generates.
    shape = {"type": "function", "name": tool.name, "description": tool.definition.description}
    return {**shape, "parameters": _input(tool), "strict": False}


def _anthropic(tool: RegisteredTool) -> _Shape:
    return {"name": tool.name, "description": tool.definition.description, "input_schema": _input(tool)}


def _gemini(tool: RegisteredTool) -> _Shape:
    return {"name": tool.name, "description": tool.definition.description, "parametersJsonSchema": _input(tool)}


def _mcp(tool: RegisteredTool) -> _Shape:
    definition = tool.definition
    shape: _Shape = {"name": tool.name}
    if definition.title:
        shape["title"] = definition.title
    shape |= {"description": definition.description, "inputSchema": _input(tool)}
    # MCP has structured output for objects alone.
    if definition.output_schema_json and orjson.loads(definition.output_schema_json).get("type") == "object":
        shape["outputSchema"] = orjson.Fragment(definition.output_schema_json)
    changes = definition.side_effects not in {Level.NONE, Level.READ}
    hosts = any(capability.startswith("host:") for capability in definition.requires)
    shape["annotations"] = {
        "readOnlyHint": not changes,
        "destructiveHint": changes,
        "idempotentHint": definition.idempotent or not changes,
        "openWorldHint": definition.side_effects is Level.EXTERNAL or hosts,
    }
    return shape


def _input(tool: RegisteredTool) -> orjson.Fragment:
    return orjson.Fragment(tool.definition.input_schema_json)


_FORMATS: Mapping[int, Callable[[RegisteredTool], _Shape]] = {
    pb.TOOL_FORMAT_OPENAI: _openai,
    pb.TOOL_FORMAT_OPENAI_RESPONSES: _openai_responses,
    pb.TOOL_FORMAT_ANTHROPIC: _anthropic,
    pb.TOOL_FORMAT_GEMINI: _gemini,
    pb.TOOL_FORMAT_MCP: _mcp,
}
