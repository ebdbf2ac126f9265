"""Filter of file events (inotify) for `plugin dev`: what an author saves, and not what tools write."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_BUILT = frozenset(
    {".git", ".hg", ".svn", ".idea", ".tox", ".venv", "__pycache__", "node_modules", "target", "build", "dist", "out"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".gradle", ".next", "site-packages"}
)
"""Folders in which tools, and not authors, write."""
_SCRATCH = re.compile(r".*(\.py[cod]|\.sw[a-z]|~|\.tmp|___jb_...___|\.DS_Store)|4913|\.#.*|flycheck_.*")
"""What editors and Python write beside a file."""


def is_source(folder: Path, path: str) -> bool:
    """Whether a saved file may change what is served. The plugin's own program does, also in a build folder."""
    parts = Path(path).relative_to(folder).parts
    if not _BUILT.isdisjoint(parts):
        return Path(path) == _own_program(folder)
    return not _SCRATCH.fullmatch(parts[-1] if parts else "")


def _own_program(folder: Path) -> Path | None:
    """The program of the folder that an executable plugin starts, as the manifest has it."""
    try:
        command = tomllib.loads((folder / "plugin.toml").read_text())["plugin"]["command"][0]
        return folder / command if "/" in command else None
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
