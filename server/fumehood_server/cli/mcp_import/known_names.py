"""Names of files that no copy of code holds: a sidecar's, and hosts' configurations if the content is one."""

from __future__ import annotations

import re
from pathlib import Path

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.json_document import read_json_value
from fumehood_server.config.config import CONFIG_NAME, LOCK_NAME

_HOST_CONFIGURATION = "a host's configuration, which may hold other servers' secrets"
_HOSTS = {
    *("mcp.json", "mcp_config.json", "mcp-config.json", "mcp_settings.json", "mcp_servers.json", "mcp-servers.json"),
    *("mcpservers.json", "claude_desktop_config.json", "cline_mcp_settings.json", ".mcp.json", ".claude.json"),
    *("opencode.json", "librechat.yaml"),
}
_SIDECARS = {
    CONFIG_NAME: "a sidecar's configuration",
    LOCK_NAME: "a sidecar's lock",
    ".fumehood": "a sidecar's state",
}
_COPIES = re.compile(r"(?:[.~-](?:bak|backup|old|orig|save|tmp|)\d*)*")
"""What follows the name in that of a copy, such as mcp.json.bak; mcp.json.ts is none."""
_PACKAGES = "node_modules"
"""What lies there was published."""
_TABLES = ("mcpServers", "servers", "context_servers", "mcp")
"""Of servers, at the top of a host's configuration."""
_MAX_DEPTH = 4
"""Of `mcpServers` within: Claude Code has them in each of its `projects`."""


def reason_by_name(path: Path) -> str:
    """What a path without symlinks is that is known by its name, and for a host's configuration by its content too.

    Empty: it is none. What can't be read as JSON may be one.
    """
    if _PACKAGES in path.parts:
        return ""
    name = path.name.lower()
    for each, what in _SIDECARS.items():
        if _is_copy(name, each):
            return what
    is_host = any(_is_copy(name, each) for each in _HOSTS)
    return _HOST_CONFIGURATION if is_host and path.is_file() and _may_name_servers(path) else ""


def _is_copy(name: str, of: str) -> bool:
    return name.startswith(of) and _COPIES.fullmatch(name, len(of)) is not None


def _may_name_servers(path: Path) -> bool:
    try:
        value, twice = read_json_value(path)
    except CommandError:
        return True
    # Of a key that stands twice one value is not seen here.
    return bool(twice) or (isinstance(value, dict) and any(each in value for each in _TABLES)) or _has_table(value)


def _has_table(value: object, depth: int = _MAX_DEPTH) -> bool:
    if not isinstance(value, dict):
        return False
    return "mcpServers" in value or (depth > 1 and any(_has_table(each, depth - 1) for each in value.values()))
