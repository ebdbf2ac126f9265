"""Imports of a script of one's own: no registry, no packages."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.command import fumehood
from tests.mcp_import import servers

IMPORT = ("mcp", "import", "mcp.json", "--yes", "--json")


def write_script(folder: Path, text: str = servers.PYTHON + "\n\nrun()\n") -> Path:
    """The server's script, in a folder of its own."""
    script = folder / "code" / "server.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(text)
    return script


def write_servers(folder: Path, variables: Mapping[str, Mapping[str, str]], **more: Any) -> None:
    """A configuration of servers that run the script, each with its variables."""
    script = str(write_script(folder))
    table = {name: {"command": "python3", "args": [script], "env": env} for name, env in variables.items()}
    (folder / "mcp.json").write_text(json.dumps({"servers": table, **more}))


def import_servers(folder: Path, variables: Mapping[str, Mapping[str, str]], *more: str) -> list[dict[str, Any]]:
    """What becomes of each, with --yes."""
    write_servers(folder, variables)
    found: list[dict[str, Any]] = fumehood(*IMPORT, *more, folder=folder).json["servers"]
    return found


def values(folder: Path, plugin: str) -> dict[str, str]:
    """What an imported plugin is handed in its variables, secrets by their files."""
    config = tomllib.loads((folder / "fumehood.toml").read_text())
    entry = next(each for each in config["plugin"] if each["path"] == f"mcp/{plugin}")
    environment = tomllib.loads((folder / "mcp" / plugin / "plugin.toml").read_text())["plugin"]["environment"]
    found = {}
    for variable, value in environment.items():
        if isinstance(value, str):
            found[variable] = value
        elif value["secret"] in entry["secrets"]:
            found[variable] = (folder / config["secrets"][value["secret"]]["file"]).read_text()
    return found
