"""Names of what hosted MCP servers have, so that two servers never collide: each says whose it is.

A prompt `greet` of the plugin `docs` is `docs/greet`; its resource `docs://index` is `fumehood://docs/docs://index`. A
template stays one: what is filled in stands after the prefix.
"""

from __future__ import annotations

SCHEME = "fumehood://"


def prompt_name(plugin: str, name: str) -> str:
    """A server's prompt, as clients know it."""
    return f"{plugin}/{name}"


def split_prompt(name: str) -> tuple[str, str] | None:
    """Plugin and prompt. None: it is no name of a prompt here."""
    plugin, slash, prompt = name.partition("/")
    return (plugin, prompt) if plugin and slash and prompt else None


def resource_uri(plugin: str, uri: str) -> str:
    """A server's resource or template, as clients know it."""
    return f"{SCHEME}{plugin}/{uri}"


def split_resource(uri: str) -> tuple[str, str] | None:
    """Plugin and the server's own URI. None: it is no resource's here."""
    if not uri.startswith(SCHEME):
        return None
    return split_prompt(uri.removeprefix(SCHEME))
