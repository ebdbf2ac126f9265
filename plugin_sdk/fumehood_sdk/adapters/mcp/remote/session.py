"""What a server of an older revision has said by `initialize`, and each message names from then on."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


class SessionEndedError(Exception):
    """The server knows the session no more, and takes nothing that names it."""


class Session:
    """The one that is current. For many threads, of which one writes."""

    __slots__ = ("id", "opening", "version")

    def __init__(self) -> None:
        """There is none."""
        self.id = ""
        self.version = ""
        self.opening: Message = {}
        """What began it."""

    @property
    def headers(self) -> dict[str, str]:
        """Fields for each message after `initialize`."""
        found = {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.version}
        return {name: value for name, value in found.items() if value}
