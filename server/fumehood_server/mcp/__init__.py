"""MCP server: offers the sidecar's tools to MCP clients, over stdio and Streamable HTTP.

It runs in a process of its own and is a gRPC client of the sidecar, as any caller. The sidecar's own process imports
`supervisor` and `errors` alone, and never the MCP SDK.
"""
