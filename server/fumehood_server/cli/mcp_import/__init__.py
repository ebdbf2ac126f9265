"""Import of MCP hosts' configurations (mcp.json): parsing, and writing plugins of kind `mcp`."""
