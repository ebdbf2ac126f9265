"""A plugin's manifest: reads and checks plugin.toml. An unknown key refuses the plugin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from fumehood_server.config.tables import try_table
from fumehood_server.config.toml_source import Key, TomlSource, read_toml
from fumehood_server.errors import ConfigError, PluginInvalidError
from fumehood_server.model.capability import valid_secret_name
from fumehood_server.model.plugin import Kind
from fumehood_server.model.tool import DeclaredLimits, Isolation, ToolDefinition
from fumehood_server.plugins.definitions import RawDefinition, check_definition
from fumehood_server.plugins.environments.dependencies import (
    DependencyError,
    canonical_dependencies,
    pyproject_dependencies,
)
from fumehood_server.plugins.manifest_file import VARIABLE_NAME, ManifestFile, PluginTable, valid_plugin_name
from fumehood_server.plugins.manifest_start import check_start
from fumehood_server.plugins.manifest_tools import read_tools
from fumehood_server.plugins.remote_server import RemoteServer, read_remote

MANIFEST_NAME = "plugin.toml"

_MCP_TIMEOUT_S = 60.0
"""Servers declare none; as long as the protocol's own clients wait by default."""


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


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the plugin in `folder`.

    Raises:
        ConfigError: it is not valid; the first problem.
    """
    reading = try_manifest(folder)
    if reading.manifest is None:
        raise reading.problems[0]
    return reading.manifest


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
    problems += check_start(file, source, folder)
    remote = _read_remote(file.plugin, source, problems)
    dependencies = _read_dependencies(file.plugin, source, folder, problems)
    tools = read_tools(file, source, problems)
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


def _read_server(plugin: PluginTable, source: TomlSource, problems: list[ConfigError]) -> ToolDefinition | None:
    """What the tools of an MCP server have in common, as a definition. None: another kind, or it is wrong."""
    if plugin.kind is not Kind.MCP:
        return None
    for name, value in (plugin.environment or {}).items():
        key: Key = ("plugin", "environment", name)
        if not VARIABLE_NAME.fullmatch(name):
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
