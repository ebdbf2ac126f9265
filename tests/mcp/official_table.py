"""What docs/mcp.md says of the official servers: their tools by level."""

from __future__ import annotations

import re
from pathlib import Path

from fumehood.v1 import tool_pb2

_PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
_LEVELS = (tool_pb2.SIDE_EFFECTS_READ, tool_pb2.SIDE_EFFECTS_WRITE, tool_pb2.SIDE_EFFECTS_EXTERNAL)


def documented_levels(server: str) -> dict[str, int]:
    """The level of each tool of a server, by the first table that names it."""
    row = next(line for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{server}` |"))
    _, _, *cells, _ = row.split("|")
    return {tool: level for level, cell in zip(_LEVELS, cells, strict=True) for tool in re.findall(r"`(\w+)`", cell)}


def served_levels(tools: dict[str, tool_pb2.Tool], plugin: str, prefix: str = "") -> dict[str, int]:
    """The level of each tool of a plugin, without the prefix that its operator gave it."""
    return {
        name.removeprefix(prefix): tool.definition.side_effects for name, tool in tools.items() if tool.plugin == plugin
    }
