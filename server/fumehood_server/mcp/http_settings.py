"""What the sidecar hands to its MCP server's process, as JSON on its standard input."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

PATH = "/mcp"
"""Of the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """All that the process knows. No secret is in it."""

    target: str
    """The sidecar's address for it, as gRPC writes it."""
    parent_pid: int
    """The sidecar's process."""
    listen_fd: int
    """The listening socket, inherited."""
    ready_fd: int
    """A pipe that is written to when requests are taken."""
    is_local: bool
    """Whether the socket is on loopback: the `Host` of a request is then one of loopback's names."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    authorization_servers: tuple[str, ...] = ()
    """URLs, for OAuth's metadata."""
    allow_anonymous: bool = False
    tls_certificate: str = ""
    """Empty: plain text."""
    tls_key: str = ""
    tls_client_ca: str = ""
    """Authorities of which each client must show a certificate. Empty: none is asked for."""
    max_body_bytes: int
    max_sessions: int
    session_idle_s: float
    max_requests: int
    """Under way at a time, streams included."""
    max_connections: int
    log_level: str
    log_is_terminal: bool

    def to_json(self) -> bytes:
        """For the process."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> HttpSettings:
        """In the process."""
        found = json.loads(text)
        for each in ("allowed_hosts", "allowed_origins", "authorization_servers"):
            found[each] = tuple(found[each])
        return cls(**found)
