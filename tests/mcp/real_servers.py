"""The official servers, each a plugin: for Node.js as npm installs them, for Python from a lock that pip made."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.cli.command import fumehood

MODULES = Path(__file__).parent / "npm" / "node_modules"
_NOT_RUN = shutil.ignore_patterns("*.ts", "*.cts", "*.mts", "*.map", "*.md", "test", "tests", "docs", ".github")
WHEELS = Path(__file__).parents[2] / "build" / "mcp-servers"
"""What `make setup` fetched, so that no index is needed here."""
MISSING = "the official servers are not there: make setup"


def node_plugin(
    folder: Path,
    server: str,
    *arguments: str,
    options: Sequence[str] = (),
    more: str = "",
    environment: str = "",
) -> Path:
    """A plugin of kind `mcp` that runs `@modelcontextprotocol/server-SERVER`. `options` are Node's."""
    assert MODULES.is_dir(), MISSING
    folder.mkdir(parents=True, exist_ok=True)
    package = f"@modelcontextprotocol/server-{server}"
    for name in _closure(package):
        shutil.copytree(
            MODULES / name,
            folder / "node_modules" / name,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=None if name == package else _NOT_RUN,  # whose resources are documents of its own
            copy_function=os.link,
        )
    (folder / ".fumehoodignore").write_text("!node_modules/\n!dist/\n!build/\n")
    command = ["node", *options, f"node_modules/{package}/dist/index.js", *arguments]
    (folder / "plugin.toml").write_text(
        f'[plugin]\nname = "{folder.name}"\nversion = "1.0.0"\nkind = "mcp"\ncommand = {json.dumps(command)}\n'
        f"{more}\n[plugin.environment]\n{environment}\n"
    )
    return folder


def python_plugin(folder: Path, command: Sequence[str], *, environment: str = "") -> Path:
    """A plugin of kind `mcp` with the packages of the official servers for Python; `lock_and_build` comes next."""
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = ["mcp-server-fetch", "mcp-server-git", "mcp-server-time"]
    (folder / "plugin.toml").write_text(
        f'[plugin]\nname = "{folder.name}"\nversion = "1.0.0"\nkind = "mcp"\ncommand = {json.dumps(command)}\n'
        f"dependencies = {json.dumps(dependencies)}\n\n[plugin.environment]\n{environment}\n"
    )
    return folder


def lock_and_build(plugins: Sequence[Path], state: Path) -> None:
    """Lock the first by pip and build what it names in the `state_dir` given; the others have the same lock."""
    assert WHEELS.is_dir(), MISSING
    first, *others = plugins
    config = state.parent / "locking.toml"
    config.write_text(f"[server]\nstate_dir = {json.dumps(str(state))}\n[[plugin]]\npath = {json.dumps(str(first))}\n")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS), "PIP_CONFIG_FILE": "/dev/null"}
    locked = fumehood("plugin", "lock", first, "--with", "pip", "--config", config, folder=state.parent, more=offline)
    assert locked.status == 0, locked.stderr
    for each in others:
        shutil.copy(first / "plugin.lock", each / "plugin.lock")


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
