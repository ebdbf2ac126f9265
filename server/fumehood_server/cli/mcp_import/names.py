"""Names of plugins and secrets made from the names that MCP hosts allow, which may hold anything."""

from __future__ import annotations

import re

_MAX = 64
_FALLBACK = "server"


def plugin_name(name: str) -> str:
    """A plugin's name: 1 to 64 of a-z, 0-9, _ and -, starting with a letter."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)  # hosts want camel case
    plain = re.sub(r"[^a-z0-9_]+", "-", spaced.lower()).strip("-_")
    if not plain:
        return _FALLBACK
    return (plain if plain[0].isalpha() else f"mcp-{plain}")[:_MAX].rstrip("-_")


def secret_name(plugin: str, variable: str) -> str:
    """A secret's name, of its plugin and its variable: two servers may have variables of one name."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", variable).strip("-").lower().replace("_", "-")
    return f"{plugin}-{plain or 'secret'}"[:_MAX].rstrip("-")
