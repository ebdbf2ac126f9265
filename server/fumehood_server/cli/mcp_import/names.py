"""Names of plugins and secrets made from the names that MCP hosts allow, which may hold anything."""

from __future__ import annotations

import hashlib
import json
import re

_MAX = 64
_FALLBACK = "server"
_DIGEST_DIGITS = 12
_PLAIN_VARIABLE = re.compile(r"[A-Z0-9]+(?:_[A-Z0-9]+)*")
_PLAIN_FIELD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def plugin_name(name: str) -> str:
    """A plugin's name: 1 to 64 of a-z, 0-9, _ and -, starting with a letter."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)  # hosts want camel case
    plain = re.sub(r"[^a-z0-9_]+", "-", spaced.lower()).strip("-_")
    if not plain:
        return _FALLBACK
    return (plain if plain[0].isalpha() else f"mcp-{plain}")[:_MAX].rstrip("-_")


def secret_name(plugin: str, variable: str) -> str:
    """The name of the secret in a plugin's variable: no other plugin or variable has it."""
    return _secret_name(plugin, variable, is_plain=_PLAIN_VARIABLE.fullmatch(variable) is not None)


def field_secret_name(plugin: str, field: str) -> str:
    """The name of the secret in a header field, likewise. Cases are one: they are to HTTP (RFC 9110, 5.1)."""
    field = field.lower()
    return _secret_name(plugin, field, is_plain=_PLAIN_FIELD.fullmatch(field) is not None)


def earlier_secret_name(plugin: str, variable: str) -> str:
    """The name that earlier imports gave it, which others may have as well."""
    return _folded(plugin, variable)[:_MAX].rstrip("-")


def _secret_name(plugin: str, variable: str, *, is_plain: bool) -> str:
    text = _folded(plugin, variable)
    # A plain one is read back to its plugin and variable: up to the first "-" it is the plugin. None has a ".".
    if is_plain and "-" not in plugin and len(text) <= _MAX:
        return text
    digest = hashlib.sha256(json.dumps([plugin, variable]).encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{text[: _MAX - _DIGEST_DIGITS - 1].rstrip('-_.')}.{digest}"


def _folded(plugin: str, variable: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", variable).strip("-").lower().replace("_", "-")
    return f"{plugin}-{plain or 'secret'}"
