"""Whose behalf a request is sent on: the gRPC metadata that says so, and what tells one MCP client from another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from fumehood_server.model.caller import MCP_CLIENT

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class McpCaller:
    """What is shown to the sidecar for one MCP client."""

    token: str = field(default="", repr=False)
    """Empty: none, and the sidecar judges by the address."""
    client: str = ""
    """The client's HTTP connection. Empty over stdio."""

    @property
    def metadata(self) -> Metadata:
        """For each gRPC request."""
        shown: Metadata = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        return (*shown, (MCP_CLIENT, self.client)) if self.client else shown

    @property
    def identity(self) -> str:
        """Tells callers apart without holding what makes a token secret. One without a token is its connection."""
        return hashlib.sha256(self.token.encode()).hexdigest() if self.token else f"anonymous {self.client}"

    @property
    def share(self) -> str:
        """Under what it is counted where callers share something. All without a token are one."""
        return self.identity if self.token else "anonymous"
