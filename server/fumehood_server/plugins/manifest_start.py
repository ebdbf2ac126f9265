"""Checks what a manifest says is started: the entrypoint, command, server or program of its kind, and no other."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.errors import ConfigError
from fumehood_server.model.capability import CapabilityError, parse_capability
from fumehood_server.model.plugin import Kind
from fumehood_server.plugins.manifest_file import ManifestFile, PluginTable

_ENTRYPOINT = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_STARTS_WITH = {Kind.PYTHON: "entrypoint", Kind.EXECUTABLE: "command", Kind.CLI: "binary", Kind.MCP: "command"}
_MCP_KEYS = ("authorities", "environment", "headers", "isolation", "timeout_s", "limits", "url")
"""Keys of `[plugin]` that kind `mcp` alone has, in place of what other kinds' tools declare."""

_DOWNLOADERS = ("npx", "uvx", "bunx", "pnpx")
"""Programs that fetch what they run at each start."""

EXAMPLES = {
    "entrypoint": 'entrypoint = "module:attribute"',
    "command": 'command = ["node", "index.js"]',
    "binary": 'binary = "grep"',
}
"""How each key that names what is started is written."""


def check_start(file: ManifestFile, source: TomlSource, folder: Path) -> list[ConfigError]:
    """Check the key that says what to start: that of the kind, and no other. Returns what is wrong."""
    plugin = file.plugin
    needed = _STARTS_WITH[plugin.kind]
    of_mcp = (key for key in _MCP_KEYS if getattr(plugin, key) and plugin.kind is not Kind.MCP)
    problems = [
        source.problem(("plugin", key), f'`{key}` is not for kind "{plugin.kind}"', f"write {EXAMPLES[needed]}")
        for key in EXAMPLES
        if key != needed and getattr(plugin, key) is not None
    ]
    problems += (source.problem(("plugin", key), f'`{key}` is for kind "mcp" alone', "remove it") for key in of_mcp)
    if plugin.threads is not None and plugin.kind is not Kind.PYTHON:
        problems.append(
            source.problem(("plugin", "threads"), f'`threads` is not for kind "{plugin.kind}"', "remove it")
        )
    if plugin.kind is Kind.MCP and plugin.url is not None:
        return [*problems, *_remote_problems(plugin, source)]
    value = getattr(plugin, needed)
    if value is None and plugin.kind is Kind.CLI and file.tool and all(table.binary for table in file.tool):
        return problems
    if value is None:
        text = f'`{needed}` is missing in [plugin] of kind "{plugin.kind}"'
        return [*problems, source.problem(("plugin",), text, f"write {EXAMPLES[needed]}")]
    if plugin.kind is Kind.PYTHON:
        problem = _entrypoint_problem(value, folder)
    elif plugin.kind is Kind.EXECUTABLE:
        problem = _command_problem(value, folder, built=plugin.build is not None)
    elif plugin.kind is Kind.MCP:
        problem = _server_problem(value, folder, built=plugin.build is not None)
    else:
        problem = binary_problem(value)
    if plugin.build is not None:
        problems += _build_problems(plugin, source, folder)
    if problem:
        problems.append(source.problem(("plugin", needed), f"`{needed}`: {problem}", f"write {EXAMPLES[needed]}"))
    return problems


def _remote_problems(plugin: PluginTable, source: TomlSource) -> list[ConfigError]:
    """What doesn't go together with a server that isn't started here."""
    given = [key for key in ("command", "environment", "dependencies", "build") if getattr(plugin, key) is not None]
    text = "is for a server that is started here, and `url` names one that runs elsewhere"
    return [source.problem(("plugin", key), f"`{key}` {text}", "remove one of them") for key in given]


def binary_problem(binary: str) -> str:
    """What is wrong with the name of a program of PATH. Empty: nothing."""
    try:
        parse_capability(f"binary:{binary}")
    except CapabilityError:
        return f'"{binary}" is not the name of a program'
    return ""


def _entrypoint_problem(entrypoint: str, folder: Path) -> str:
    if not _ENTRYPOINT.fullmatch(entrypoint):
        return f'"{entrypoint}" is not MODULE:ATTRIBUTE'
    first = entrypoint.partition(":")[0].partition(".")[0]
    if not ((folder / f"{first}.py").is_file() or (folder / first).is_dir() or (folder / ".venv").is_dir()):
        return f'there is no module "{first}" in {folder}'
    return ""


def _build_problems(plugin: PluginTable, source: TomlSource, folder: Path) -> list[ConfigError]:
    key: Key = ("plugin", "build")
    if plugin.kind not in {Kind.EXECUTABLE, Kind.MCP}:
        return [source.problem(key, f'`build` is not for kind "{plugin.kind}"', "python has `dependencies`")]
    if plugin.dependencies:
        return [source.problem(key, "`build` and `dependencies` don't go together", "remove one")]
    problem = _command_problem(plugin.build or [], folder)
    return [source.problem(key, f"`build`: {problem}", 'write build = ["npm", "ci"]')] if problem else []


def _server_problem(command: list[str], folder: Path, *, built: bool) -> str:
    """What is wrong with the command of an MCP server, whose program may be a script of the packages as well."""
    if command and command[0] in _DOWNLOADERS:
        return f'"{command[0]}" downloads what it runs; name what `build` or `dependencies` installed'
    return _command_problem(command, folder, built=built)


def _command_problem(command: list[str], folder: Path, *, built: bool = False) -> str:
    """What is wrong with a command. `built`: its program may be there only once the plugin is built."""
    if not command or not command[0] or any("\0" in each for each in command):
        return "a program and its arguments, none of them with a NUL, are needed"
    program = command[0]
    if "/" not in program:
        return binary_problem(program)
    path = (folder / program).resolve()
    if Path(program).is_absolute() or not path.is_relative_to(folder):
        return f'"{program}" lies outside of the plugin\'s folder; name a program of PATH or one of the folder'
    if not built and not (path.is_file() and os.access(path, os.X_OK)):
        return f'"{program}" is not an executable file of the plugin\'s folder'
    return ""
