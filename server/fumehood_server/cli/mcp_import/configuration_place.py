"""Place of the fumehood.toml that an import writes: the working directory, or one outside of what servers are granted.

What a server may read or write must not hold the sidecar's configuration, lock, socket, state or plugins.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fumehood_server.cli.config_edit import NEW_FILE
from fumehood_server.cli.mcp_import.plan import ServerPlan
from fumehood_server.config import SidecarConfig, load_config
from fumehood_server.config.config import CONFIG_NAME
from fumehood_server.config.load import default_config

START_TIMEOUT_S = 60
"""`start_timeout_s` of one that an import makes. Servers of npm's and Python's packages take longer than 10 s at times:
to be read from a cold disk, or on a busy machine."""

_START_LINE = f"start_timeout_s = {START_TIMEOUT_S}  # of what was installed just now, from a cold disk\n"
_MAX_NAME = 24
"""Of a workspace, in the name of its folder: a unix socket's path, which lies deeper, has 107 bytes (unix(7))."""


@dataclass(frozen=True, slots=True)
class ConfigurationPlace:
    """Where fumehood.toml is, or will be."""

    path: Path
    """Absolute."""
    held_by: Path | None = None
    """Folder of the working directory that a server names, for which it is not there. None: it is, or was named."""

    @property
    def is_here(self) -> bool:
        """Whether `fumehood serve` finds it by itself."""
        return self.path == Path.cwd() / CONFIG_NAME

    def make_folder(self) -> None:
        """Make the folder that it lies in, the user's own for nobody else.

        Raises:
            OSError: it can't be made.
        """
        self.path.parent.parent.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(mode=0o700 if self.held_by else 0o777, exist_ok=True)


def place_configuration(given: Path | None, plans: Iterable[ServerPlan], workspace: Path | None) -> ConfigurationPlace:
    """The file that was given, there or not; else that of the working directory, unless a server names what holds it.

    Then it is one of the user's own for this workspace, where a later import finds it as well.
    """
    if given is not None:
        return ConfigurationPlace(given.absolute())
    here = Path.cwd()
    top = workspace.resolve() if workspace is not None and here.is_relative_to(workspace.resolve()) else here
    own = _own_folder(top) / CONFIG_NAME
    folders = [named.folder for plan in plans for named in plan.paths if here.is_relative_to(named.folder)]
    if folders:
        return ConfigurationPlace(own, min(folders, key=lambda each: len(each.parts)))
    if own.exists() and not (here / CONFIG_NAME).exists():
        return ConfigurationPlace(own, top)
    return ConfigurationPlace(here / CONFIG_NAME)


def configuration_at(path: Path) -> SidecarConfig:
    """What the file says, or will by default where it isn't there yet.

    Raises:
        ConfigError: it is not valid.
    """
    # Packages are installed where the sidecar will look once the file is there.
    found = load_config(path) if path.exists() else default_config(path.parent.resolve(), named=path)
    return replace(found, path=path)


def make_configuration(path: Path) -> None:
    """Write a fumehood.toml without plugins, unless there is one.

    Raises:
        OSError: it can't be written.
    """
    if not path.exists():
        path.write_text(NEW_FILE + _START_LINE)


def short_start(config: SidecarConfig) -> str:
    """A note where the file has servers ended that take as long to start as an import gives them. Empty: it doesn't."""
    given = config.server.start_timeout_s
    if given >= START_TIMEOUT_S:
        return ""
    return (
        f"{config.path} gives a server {given:g} s to start, where an import gives it {START_TIMEOUT_S}; if its calls "
        f"end with `did not say Ready`, in its [server]:\n    start_timeout_s = {START_TIMEOUT_S}"
    )


def address_of(config: SidecarConfig) -> str:
    """By which a client of this machine reaches its sidecar from any folder: its unix socket, if it has one."""
    listen = min(config.server.listen, key=lambda each: each.path is None)
    return f"unix:{listen.path}" if listen.path is not None else f"{listen.host}:{listen.port}"


def _own_folder(workspace: Path) -> Path:
    """By the XDG Base Directory Specification, which has relative paths ignored."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".config"
    digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", workspace.name).strip("-")[:_MAX_NAME]
    return home / "fumehood" / "-".join(filter(None, (name, digest)))
