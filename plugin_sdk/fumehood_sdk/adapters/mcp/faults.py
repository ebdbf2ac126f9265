"""What ends the process: its MCP server broke the protocol, or is gone."""

from __future__ import annotations


class ServerFault(Exception):  # noqa: N818 - says what happened
    """The server can't be used any more. The sidecar reads the message in the log and starts another process."""
