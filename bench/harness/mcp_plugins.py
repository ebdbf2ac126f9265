"""The peers' echo servers as plugins of kind `mcp`, unmodified, each with the packages that it imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from bench.harness.processes import ROOT
from bench.harness.sidecar import SERVE, write_config

TYPESCRIPT = ROOT / "bench" / "peers" / "mcp_typescript"
PYTHON = ROOT / "bench" / "peers" / "mcp_server.py"
WHEELS = ROOT / "build" / "mcp-servers"
"""What `make setup` fetched for the official servers for Python, the SDK among it."""
_PATIENCE = "start_timeout_s = 60\n\n"
"""Of `[server]`: the SDK for Python takes 0.7 s to import on an idle machine, and many times that on a busy one."""
_GRANTS = 'max_side_effects = "read"\n[plugin.tools.echo]\nside_effects = "read"\n'
"""The echo servers say nothing of their tool, which makes it external: an operator knows better."""
_LOCK_S = 120.0


def typescript_config(folder: Path) -> Path:
    """Write the configuration of a sidecar whose one plugin is the echo server for Node.js."""
    plugin = folder / "typescript"
    plugin.mkdir(parents=True)
    shutil.copy(TYPESCRIPT / "server.mjs", plugin)
    shutil.copytree(TYPESCRIPT / "node_modules", plugin / "node_modules", symlinks=True)
    (plugin / ".fumehoodignore").write_text("!node_modules/\n!dist/\n!build/\n")
    _write_manifest(plugin, ["node", "server.mjs"])
    return write_config(folder, f'{_PATIENCE}[[plugin]]\npath = "{plugin}"\n{_GRANTS}')


def python_config(folder: Path) -> Path:
    """Write the configuration of a sidecar whose one plugin is the echo server for Python; lock and build it."""
    plugin = folder / "python"
    plugin.mkdir(parents=True)
    shutil.copy(PYTHON, plugin / "server.py")
    _write_manifest(plugin, ["python", "server.py"], 'dependencies = ["mcp"]')
    config = write_config(folder, f'{_PATIENCE}[[plugin]]\npath = "{plugin}"\n{_GRANTS}')
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS), "PIP_CONFIG_FILE": "/dev/null"}
    command = [*SERVE[:-1], "plugin", "lock", str(plugin), "--with", "pip", "--config", str(config)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **offline}, timeout=_LOCK_S)
    return config


def _write_manifest(plugin: Path, command: list[str], more: str = "") -> None:
    head = f'[plugin]\nname = "{plugin.name}"\nversion = "1.0.0"\nkind = "mcp"\n'
    (plugin / "plugin.toml").write_text(f"{head}command = {json.dumps(command)}\n{more}\n")
