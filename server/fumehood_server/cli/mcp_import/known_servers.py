"""Servers that need a variable in a sandbox which they can do without elsewhere, and what to set it to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fumehood_server.cli.mcp_import.launchers import Launch, ServerCommand, npm_name


@dataclass(frozen=True, slots=True)
class LackingSetting:
    """A variable that a server needs and isn't handed."""

    variable: str
    why: str
    """What is wrong without it."""
    value: str
    """What it is to hold, in words: a path."""

    @property
    def todo(self) -> str:
        """What whoever imports the server is to do."""
        return f"set {self.variable} in its `env` to {self.value}, and import it again: without it, {self.why}"


_SETTINGS = {
    (Launch.NPM, "@modelcontextprotocol/server-memory"): LackingSetting(
        "MEMORY_FILE_PATH",
        "it keeps its graph beside its own code, where nothing can be written here",
        "a file in a folder of its own, such as /home/ada/memory/graph.jsonl",
    ),
}


def lacking_settings(command: ServerCommand, environment: Mapping[str, str]) -> tuple[LackingSetting, ...]:
    """What a server that is known here needs beside its variables."""
    if command.launch is not Launch.NPM:
        return ()
    found = _SETTINGS.get((command.launch, npm_name(command.requirement)[0]))
    return () if found is None or found.variable in environment else (found,)
