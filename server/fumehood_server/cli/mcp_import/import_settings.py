"""Settings of one run of `fumehood mcp import`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from fumehood_server.cli.mcp_import.asking import Asker
from fumehood_server.cli.mcp_import.host_configuration import Host

MAX_PROBLEM = 2000
"""Characters of what is said of one server: the end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What holds for all servers of one run."""

    config_path: Path
    """Absolute. It need not be there."""
    into: Path | None
    """Folder of the plugins' folders. None: `mcp` beside fumehood.toml."""
    host: Host | None
    asker: Asker
    dry_run: bool = False
    upgrade: bool = False
    listed_with_grants: Collection[str] = ()
    """Servers on stdio that are asked for their tools with what they are granted, by the names of the host's file."""
    quiet: bool = False
    say: Callable[[str], None] = field(default=lambda _line: None)
