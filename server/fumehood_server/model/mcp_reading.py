"""Reserved tools of plugins of kind `mcp`: each passes one method of the protocol through, by which a server is read.

They are called as any tool is, and so have rights, rules, limits, deadlines and a record. No listing of tools has them.
"""

from __future__ import annotations

from enum import StrEnum


class McpReading(StrEnum):
    """A reserved tool, by the method that it passes through. Its plugin's process knows it by this name."""

    LIST_RESOURCES = "resources/list"
    LIST_TEMPLATES = "resources/templates/list"
    READ_RESOURCE = "resources/read"
    LIST_PROMPTS = "prompts/list"
    GET_PROMPT = "prompts/get"

    def tool(self, plugin: str) -> str:
        """What callers and rules know it by. No other tool's name has a slash."""
        return f"{plugin}/{self.value}"


__all__ = ["McpReading"]
