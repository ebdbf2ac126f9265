"""The official servers for Node.js, as npm installs them, each in a plugin's folder with what it imports."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

MODULES = Path(__file__).parent / "npm" / "node_modules"
_NOT_RUN = shutil.ignore_patterns("*.ts", "*.cts", "*.mts", "*.map", "*.md", "test", "tests", "docs", ".github")
MISSING = "the official servers are not there: make setup"


def node_plugin(folder: Path, server: str, *arguments: str, more: str = "", environment: str = "") -> Path:
    """A plugin of kind `mcp` that runs `@modelcontextprotocol/server-SERVER`."""
    folder.mkdir(parents=True, exist_ok=True)
    package = f"@modelcontextprotocol/server-{server}"
    for name in _closure(package):
        shutil.copytree(
            MODULES / name,
            folder / "node_modules" / name,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=_NOT_RUN,
            copy_function=os.link,
        )
    (folder / ".fumehoodignore").write_text("!node_modules/\n!dist/\n!build/\n")
    command = ["node", f"node_modules/{package}/dist/index.js", *arguments]
    (folder / "plugin.toml").write_text(
        f'[plugin]\nname = "{folder.name}"\nversion = "1.0.0"\nkind = "mcp"\ncommand = {json.dumps(command)}\n'
        f"{more}\n[plugin.environment]\n{environment}\n"
    )
    return folder


def _closure(package: str) -> set[str]:
    """The packages of the top folder that one needs, itself among them."""
    found: set[str] = set()
    pending = [package]
    while pending:
        name = pending.pop()
        if name in found or not (MODULES / name).is_dir():
            continue
        found.add(name)
        for file in (MODULES / name).glob("**/package.json"):
            read = json.loads(file.read_text())
            needed = read.get("dependencies") if isinstance(read, dict) else None
            pending += needed if isinstance(needed, dict) else ()
    return found
