"""Errors of the MCP server that the operator must mend."""

from __future__ import annotations

from fumehood_server.errors import FumehoodError


class McpMissingError(FumehoodError):
    """The MCP SDK is not installed. The operator must install it, or not ask for an MCP server."""

    def __init__(self, module: str) -> None:
        """`module` is what could not be imported."""
        super().__init__(f"the MCP server needs libraries that are not installed: there is no module {module}")
        self.module = module
