"""A plugin's manifest: reads and checks plugin.toml. An unknown key refuses the plugin."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from fumehood_server.config.tables import try_table
from fumehood_server.config.toml_source import Key, TomlSource, read_toml
from fumehood_server.errors import ConfigError, PluginInvalidError
from fumehood_server.model.capability import CapabilityError, parse_capability, valid_secret_name
from fumehood_server.model.nearest import nearest
from fumehood_server.model.plugin import Kind
from fumehood_server.model.tool import DeclaredLimits, Isolation, ToolDefinition
from fumehood_server.plugins.cli_template import check_template
from fumehood_server.plugins.definitions import FieldProblem, RawDefinition, check_definition
from fumehood_server.plugins.environments.dependencies import (
    DependencyError,
    canonical_dependencies,
    pyproject_dependencies,
)
from fumehood_server.plugins.manifest_file import ManifestFile, PluginTable, ToolTable, valid_plugin_name
from fumehood_server.plugins.remote_server import RemoteServer, read_remote

MANIFEST_NAME = "plugin.toml"

_ENTRYPOINT = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLI_KEYS = ("argv", "success_exit_codes", "binary", "stdin", "environment", "working_folder", "output")
"""Keys of a tool that kind `cli` alone has."""

_OUTPUTS = ("text", "json")
_STARTS_WITH = {Kind.PYTHON: "entrypoint", Kind.EXECUTABLE: "command", Kind.CLI: "binary", Kind.MCP: "command"}
_MCP_KEYS = ("authorities", "environment", "headers", "isolation", "timeout_s", "limits", "url")
"""Keys of `[plugin]` that kind `mcp` alone has, in place of what other kinds' tools declare."""

_DOWNLOADERS = ("npx", "uvx", "bunx", "pnpx")
"""Programs that fetch what they run at each start."""

_MCP_TIMEOUT_S = 60.0
"""Servers declare none; as long as the protocol's own clients wait by default."""
_EXAMPLES = {
    "entrypoint": 'entrypoint = "module:attribute"',
    "command": 'command = ["node", "index.js"]',
    "binary": 'binary = "grep"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A valid plugin.toml."""

    folder: Path
    """Absolute, without symlinks."""
    name: str
    version: str
    kind: Kind
    description: str
    entrypoint: str
    """Kind `python`: "module:attribute". Else empty."""
    command: tuple[str, ...]
    """Kinds `executable` and `mcp`: program and arguments. Else empty."""
    binary: str
    """Kind `cli`: name of the program, of the first one where each tool names its own. Else empty."""
    binaries: tuple[str, ...]
    """Kind `cli`: the names of all programs, `binary` first."""
    concurrency: int
    """Most calls at once in one worker."""
    dependencies: tuple[str, ...]
    """Packages that it needs, as PEP 508 writes them, sorted: of plugin.toml, else of a pyproject.toml beside it."""
    build: tuple[str, ...]
    """Kinds `executable` and `mcp`: the command that makes what it runs from its folder. Empty: the folder is run as it
    is."""
    threads: int
    """Kind `python`: threads that its libraries may start of themselves. Else 1."""
    tools: tuple[ToolDefinition, ...]
    """In the order of the file. Kinds `python` and `mcp`: empty, since their code is the source."""
    environment: tuple[tuple[str, str], ...] = ()
    """Kind `mcp`: names and values that its server gets."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Kind `mcp`: names of variables that its server gets, and the secrets whose values they have."""
    remote: RemoteServer | None = None
    """Kind `mcp`: the server over HTTP, in place of `command`."""
    isolation: Isolation | None = None
    """Kind `mcp`: that of its tools. None: the kind's own."""
    timeout_s: float = _MCP_TIMEOUT_S
    """Kind `mcp`: that of its tools."""
    limits: DeclaredLimits = field(default_factory=DeclaredLimits)
    """Kind `mcp`: those of its tools."""

    @property
    def takes_packages(self) -> bool:
        """Whether it runs with the packages of a lock."""
        return self.kind is Kind.PYTHON or (self.kind is Kind.MCP and bool(self.dependencies))


@dataclass(frozen=True, slots=True)
class ManifestReading:
    """The outcome of reading one manifest: the manifest, or every problem found, ordered by line."""

    name: str
    """The plugin's name, or its folder's where the manifest doesn't give a valid one."""
    manifest: Manifest | None
    problems: tuple[ConfigError, ...]


def try_manifest(folder: Path) -> ManifestReading:
    """Read the manifest in `folder`, with all problems that can be found. Never raises ConfigError."""
    folder = folder.resolve()
    try:
        check_present(folder)
        source = read_toml(folder / MANIFEST_NAME, PluginInvalidError)
    except ConfigError as exc:
        return ManifestReading(folder.name, None, (exc,))
    name = _name(source, folder)
    file, problems = try_table(ManifestFile, source)
    if file is None:
        return ManifestReading(name, None, tuple(problems))
    problems += _check_start(file, source, folder)
    remote = _read_remote(file.plugin, source, problems)
    dependencies = _read_dependencies(file.plugin, source, folder, problems)
    tools = _read_tools(file, source, problems)
    server = _read_server(file.plugin, source, problems)
    if problems:
        return ManifestReading(name, None, tuple(sorted(problems, key=lambda each: each.line)))
    plugin = file.plugin
    binaries = tuple(
        dict.fromkeys(each for each in (plugin.binary, *(table.binary for table in file.tool)) if each is not None)
    )
    manifest = Manifest(
        folder=folder,
        name=plugin.name,
        version=plugin.version,
        kind=plugin.kind,
        description=plugin.description,
        entrypoint=plugin.entrypoint or "",
        command=tuple(plugin.command or ()),
        binary=binaries[0] if binaries else "",
        binaries=binaries,
        concurrency=plugin.concurrency,
        dependencies=dependencies,
        build=tuple(plugin.build or ()),
        threads=plugin.threads or 1,
        tools=tuple(tools),
    )
    if server is not None:
        environment = plugin.environment or {}
        manifest = replace(
            manifest,
            environment=tuple((key, value) for key, value in environment.items() if isinstance(value, str)),
            secrets=tuple((key, value.secret) for key, value in environment.items() if not isinstance(value, str)),
            remote=remote,
            isolation=server.isolation if plugin.isolation else None,
            timeout_s=server.timeout_s,
            limits=server.limits,
        )
    return ManifestReading(name, manifest, ())


def check_present(folder: Path) -> None:
    """Check that there is a manifest in `folder`.

    Raises:
        PluginInvalidError: there is none, or it can't be seen.
    """
    path = folder / MANIFEST_NAME
    try:
        path.stat()
    except OSError as exc:
        hint = "a plugin is a folder with a plugin.toml" if isinstance(exc, FileNotFoundError) else ""
        raise PluginInvalidError(path, f"can't be read: {exc.strerror}", hint=hint) from exc


def _name(source: TomlSource, folder: Path) -> str:
    plugin = source.data.get("plugin")
    name = plugin.get("name") if isinstance(plugin, dict) else None
    return str(name) if valid_plugin_name(name) else folder.name


def _check_start(file: ManifestFile, source: TomlSource, folder: Path) -> list[ConfigError]:
    """Check the key that says what to start: that of the kind, and no other."""
    plugin = file.plugin
    needed = _STARTS_WITH[plugin.kind]
    of_mcp = (key for key in _MCP_KEYS if getattr(plugin, key) and plugin.kind is not Kind.MCP)
    problems = [
        source.problem(("plugin", key), f'`{key}` is not for kind "{plugin.kind}"', f"write {_EXAMPLES[needed]}")
        for key in _EXAMPLES
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
        return [*problems, source.problem(("plugin",), text, f"write {_EXAMPLES[needed]}")]
    if plugin.kind is Kind.PYTHON:
        problem = _entrypoint_problem(value, folder)
    elif plugin.kind is Kind.EXECUTABLE:
        problem = _command_problem(value, folder, built=plugin.build is not None)
    elif plugin.kind is Kind.MCP:
        problem = _server_problem(value, folder, built=plugin.build is not None)
    else:
        problem = _binary_problem(value)
    if plugin.build is not None:
        problems += _build_problems(plugin, source, folder)
    if problem:
        problems.append(source.problem(("plugin", needed), f"`{needed}`: {problem}", f"write {_EXAMPLES[needed]}"))
    return problems


def _remote_problems(plugin: PluginTable, source: TomlSource) -> list[ConfigError]:
    """What doesn't go together with a server that isn't started here."""
    given = [key for key in ("command", "environment", "dependencies", "build") if getattr(plugin, key) is not None]
    text = "is for a server that is started here, and `url` names one that runs elsewhere"
    return [source.problem(("plugin", key), f"`{key}` {text}", "remove one of them") for key in given]


def _read_remote(plugin: PluginTable, source: TomlSource, problems: list[ConfigError]) -> RemoteServer | None:
    if plugin.kind is not Kind.MCP:
        return None
    if plugin.url is None:
        problems += (
            source.problem(("plugin", key), f"`{key}` is for a server with `url`", "remove it")
            for key in ("headers", "authorities")
            if getattr(plugin, key) is not None
        )
        return None
    remote, wrong = read_remote(plugin.url, plugin.headers or {}, plugin.authorities or "", source.path.parent)
    for key, problem in wrong.items():
        problems.append(source.problem(("plugin", *key.split(".", 1)), f"`{key}`: {problem}"))
    return remote


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
        return _binary_problem(program)
    path = (folder / program).resolve()
    if Path(program).is_absolute() or not path.is_relative_to(folder):
        return f'"{program}" lies outside of the plugin\'s folder; name a program of PATH or one of the folder'
    if not built and not (path.is_file() and os.access(path, os.X_OK)):
        return f'"{program}" is not an executable file of the plugin\'s folder'
    return ""


def _read_dependencies(
    plugin: PluginTable, source: TomlSource, folder: Path, problems: list[ConfigError]
) -> tuple[str, ...]:
    key: Key = ("plugin", "dependencies")
    if plugin.kind is Kind.MCP and plugin.dependencies is None:
        return ()
    if plugin.kind not in {Kind.PYTHON, Kind.MCP}:
        if plugin.dependencies is not None:
            text = f'`dependencies` is not for kind "{plugin.kind}"'
            problems.append(source.problem(key, text, "they are packages for Python plugins"))
        return ()
    try:
        if plugin.dependencies is None:
            return pyproject_dependencies(folder)
        for index, text in enumerate(plugin.dependencies):
            key = ("plugin", "dependencies", index)
            canonical_dependencies([text])
        return canonical_dependencies(plugin.dependencies)
    except DependencyError as exc:
        problems.append(source.problem(key, exc.problem, exc.hint))
    except ConfigError as exc:
        problems.append(exc)
    return ()


def _binary_problem(binary: str) -> str:
    try:
        parse_capability(f"binary:{binary}")
    except CapabilityError:
        return f'"{binary}" is not the name of a program'
    return ""


def _read_tools(file: ManifestFile, source: TomlSource, problems: list[ConfigError]) -> list[ToolDefinition]:
    kind = file.plugin.kind
    if kind.describes_itself:
        if file.tool:
            whose = "the @plugin.tool decorators are" if kind is Kind.PYTHON else "the server's tools/list is"
            hint = f"{whose} the source: remove [[tool]]"
            problems.append(source.problem(("tool", 0), f'[[tool]] is not for kind "{kind}"', hint))
        return []
    if not file.tool:
        problems.append(source.problem((), f'a plugin of kind "{kind}" declares no tool', "write [[tool]]"))
    tools: list[ToolDefinition] = []
    for index, table in enumerate(file.tool):
        definition, found = _read_tool(table, file.plugin)
        if any(definition and definition.name == each.name for each in tools):
            found = (*found, FieldProblem("name", "is the name of two tools", "rename one"))
        for each in found:
            key: Key = ("tool", index, *(int(part) if part.isdigit() else part for part in each.field.split(".")))
            problems.append(source.problem(key, f'tool "{table.name}": `{each.field}` {each.problem}', each.hint))
        if definition:
            tools.append(definition)
    return tools


def _read_server(plugin: PluginTable, source: TomlSource, problems: list[ConfigError]) -> ToolDefinition | None:
    """What the tools of an MCP server have in common, as a definition. None: another kind, or it is wrong."""
    if plugin.kind is not Kind.MCP:
        return None
    for name, value in (plugin.environment or {}).items():
        key: Key = ("plugin", "environment", name)
        if not _VARIABLE.fullmatch(name):
            problems.append(source.problem(key, f'"{name[:80]}" is not the name of a variable'))
        elif isinstance(value, str):
            if "\0" in value:
                problems.append(source.problem(key, f"the value of {name} holds a NUL"))
        elif not valid_secret_name(value.secret):
            problems.append(source.problem(key, f'"{value.secret}" is not the name of a secret'))
    raw = RawDefinition(
        name="server",
        description="-",
        input_schema_json='{"type": "object"}',
        side_effects="external",
        timeout_s=plugin.timeout_s or _MCP_TIMEOUT_S,
        isolation=plugin.isolation or plugin.kind.default_isolation,
        limits=plugin.limits.model_dump(exclude_none=True) if plugin.limits else {},
    )
    definition, found = check_definition(raw)
    for each in found:
        key = ("plugin", *each.field.split("."))
        problems.append(source.problem(key, f"`{each.field}` {each.problem}", each.hint))
    return definition


def _read_tool(table: ToolTable, plugin: PluginTable) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...]]:
    raw = RawDefinition(
        name=table.name,
        title=table.title,
        description=table.description,
        input_schema_json=table.input_schema,
        output_schema_json=table.output_schema,
        side_effects=table.side_effects,
        idempotent=table.idempotent,
        requires=tuple(table.requires),
        timeout_s=table.timeout_s,
        idle_timeout_s=table.idle_timeout_s,
        prepares_arguments=table.prepares_arguments,
        isolation=table.isolation or plugin.kind.default_isolation,
        execution_mode=table.execution_mode,
        limits=table.limits.model_dump(exclude_none=True),
    )
    if plugin.kind is Kind.CLI:
        raw = replace(raw, requires=(*raw.requires, f"binary:{table.binary or plugin.binary}"))
    definition, problems = check_definition(raw)
    return definition, (*problems, *_check_argv(table, plugin.kind, definition))


def _check_argv(table: ToolTable, kind: Kind, definition: ToolDefinition | None) -> tuple[FieldProblem, ...]:
    if kind is not Kind.CLI:
        keys = [key for key in _CLI_KEYS if getattr(table, key) is not None]
        return tuple(FieldProblem(key, 'is for kind "cli" alone', "remove it") for key in keys)
    problems: list[FieldProblem] = []
    if table.prepares_arguments:
        problems.append(FieldProblem("prepares_arguments", 'is not for kind "cli"', "its program speaks no frames"))
    if table.binary is not None and (problem := _binary_problem(table.binary)):
        problems.append(FieldProblem("binary", problem, f"write {_EXAMPLES['binary']}"))
    if table.output not in (None, *_OUTPUTS):
        problems.append(FieldProblem("output", f'unknown word "{table.output[:80]}"', nearest(table.output, _OUTPUTS)))
    wrong = [name for name in table.environment or () if not _VARIABLE.fullmatch(name)]
    problems += (FieldProblem("environment", f'"{name[:80]}" is not the name of a variable') for name in wrong)
    if table.argv is None:
        problems.append(FieldProblem("argv", "is missing", 'the arguments of the program, such as ["--", "{path}"]'))
    if definition is None:
        return tuple(problems)
    texts = {"stdin": table.stdin, "working_folder": table.working_folder}
    texts |= {f"environment.{name}": text for name, text in (table.environment or {}).items()}
    given = {place: text for place, text in texts.items() if text is not None}
    return (*problems, *check_template(table.argv or (), definition.input_schema_json, given))
