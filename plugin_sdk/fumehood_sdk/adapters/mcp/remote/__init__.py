"""An MCP server over Streamable HTTP as a stdio server: a process of its own, beside the adapter, in its sandbox."""

REQUEST_KEY = "fumehood/request"
"""Names the request of ours that a remote server's own came with, in a message of the process that speaks to it."""
