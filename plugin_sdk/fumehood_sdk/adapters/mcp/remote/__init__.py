"""An MCP server over Streamable HTTP as a stdio server: a process of its own, beside the adapter, in its sandbox."""
