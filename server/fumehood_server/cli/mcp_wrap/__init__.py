"""One MCP server behind a sidecar of its own, for a line of an mcp.json."""
