"""Scopes of Claude Code's `~/.claude.json`: a user's servers, and those of one project alone (its scope `local`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class LocalScope:
    """What `projects` holds beside the user's servers."""

    servers: Mapping[str, Any]
    """Those of the project that was asked for."""
    others: tuple[str, ...]
    """Folders of other projects that have servers."""


def read_local_scope(document: Mapping[str, Any], folder: Path) -> LocalScope:
    """The servers of the project in this very folder: Claude Code has those of the folder that it is started in."""
    projects = document.get("projects")
    tables = {
        path: project["mcpServers"]
        for path, project in (projects.items() if isinstance(projects, dict) else ())
        if isinstance(project, dict) and isinstance(project.get("mcpServers"), dict) and project["mcpServers"]
    }
    names = (str(folder.absolute()), str(folder.resolve()))
    mine = next((each for each in names if each in tables), None)
    return LocalScope(
        servers={} if mine is None else tables[mine],
        others=tuple(each for each in tables if each != mine),
    )


def named_projects(folders: Sequence[str]) -> str:
    """The first of them for a message: Claude Code keeps every folder that it was ever started in."""
    more = len(folders) - _MAX_NAMED
    return ", ".join(folders[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
