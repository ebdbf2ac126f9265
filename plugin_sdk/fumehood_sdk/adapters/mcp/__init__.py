"""The shim of kind `mcp`: a client of the Model Context Protocol over stdio, inside the sandbox, beside the server."""
