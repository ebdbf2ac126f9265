"""What the adapter hands to the process that speaks to a remote server: URL, header fields, and a bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

VARIABLE = "FUMEHOOD_MCP_REMOTE"
"""The environment variable that holds them as JSON."""
_PROXY = "http_proxy"
_PORTS = {"http": 80, "https": 443}


class RemoteSettings:
    """Where the server is, and by which relay it is reached."""

    __slots__ = (
        "authorities",
        "headers",
        "host",
        "is_tls",
        "max_message_bytes",
        "path",
        "port",
        "proxy_host",
        "proxy_port",
        "url",
    )

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read from a process's environment.

        Raises:
            KeyError: a variable is missing.
            ValueError: one holds what it should not.
        """
        read = json.loads(environment[VARIABLE])
        self.url: str = read["url"]
        self.authorities: str = read["authorities"]
        """A file with the authorities that are trusted. Empty: the system's are."""
        self.headers: dict[str, str] = read["headers"]
        self.max_message_bytes: int = read["max_message_bytes"]
        parts = urlsplit(self.url)
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or _PORTS[parts.scheme]
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        proxy = urlsplit(environment[_PROXY])
        self.proxy_host = proxy.hostname or ""
        self.proxy_port = proxy.port or 0


def to_environment(launch: Mapping[str, Any], headers: Mapping[str, str], max_message_bytes: int) -> dict[str, str]:
    """The variable for `RemoteSettings`."""
    taken = {"url": launch["url"], "authorities": launch["authorities"]}
    held = {**taken, "headers": dict(headers), "max_message_bytes": max_message_bytes}
    return {VARIABLE: json.dumps(held)}
