"""Servers that need a variable in a sandbox which they can do without elsewhere, and what to set it to."""

from __future__ import annotations

from collections.abc import Mapping

from fumehood_server.cli.mcp_import.launchers import Launch, ServerCommand, npm_name

_SETTINGS = {
    (Launch.NPM, "@modelcontextprotocol/server-memory"): (
        "MEMORY_FILE_PATH",
        "it keeps its graph beside its own code, where nothing can be written here",
        "a file in a folder of its own, such as /home/ada/memory/graph.jsonl",
    ),
}


def lacking_settings(command: ServerCommand, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What is to be set in the `env` of a server that is known here, a sentence each."""
    if command.launch is not Launch.NPM:
        return ()
    name, why, value = _SETTINGS.get((command.launch, npm_name(command.requirement)[0]), ("", "", ""))
    if not name or name in environment:
        return ()
    return (f"set {name} in its `env` to {value}, and import it again: without it, {why}",)
