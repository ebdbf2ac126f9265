"""Registers a loaded plugin: each tool's permission, timeout and worker spec, by its grants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fumehood_sandbox import Level

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.mcp_reading import McpReading
from fumehood_server.model.nearest import nearest
from fumehood_server.model.plugin import (
    PluginState,
    RegisteredPlugin,
    RegisteredTool,
    ToolGrant,
    WorkerSpec,
)
from fumehood_server.model.tool import DEFAULT_PERMISSION, Reason, ToolDefinition
from fumehood_server.plugins.definition_verifier import DefinitionVerifier
from fumehood_server.plugins.definitions import definition_digest
from fumehood_server.plugins.launch.program import BuiltProgram
from fumehood_server.plugins.loading import LoadedPlugin
from fumehood_server.plugins.lock import Pinned
from fumehood_server.plugins.mcp_readings import reading_definitions
from fumehood_server.plugins.mcp_tools import with_grants
from fumehood_server.plugins.program_places import writable_program
from fumehood_server.plugins.requirements import reach_of, standing_reasons
from fumehood_server.plugins.specs import SpecMaker, build_program

_READINGS = frozenset(McpReading)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One plugin of the configuration, with what availability checks need."""

    config: PluginConfig
    plugin: RegisteredPlugin
    loaded: LoadedPlugin | None = None
    """None when it was refused."""
    built: BuiltProgram | None = None
    """None as well while its program isn't installed."""
    damage: Reason | None = None
    """What was wrong with its copy when a worker was to be started last."""
    enabled: RegisteredPlugin | None = None
    """Its plugin as it would be, were it not disabled. None: it isn't."""

    @property
    def waits_for_program(self) -> bool:
        """Whether nothing but its program is missing."""
        return self.loaded is not None and self.built is None and self.loaded.environment_problem is None


def register(config: SidecarConfig, plugin: PluginConfig, loaded: LoadedPlugin) -> Registration:
    """Register a plugin. A tool that requires more than is granted is kept without a spec, with the reasons.

    Raises:
        ConfigError: its program can't be run for a reason other than that it isn't installed.
        SdkMissingError: the sidecar's installation is incomplete.
    """
    manifest = loaded.manifest
    missing: tuple[Reason, ...] = (loaded.environment_problem,) if loaded.environment_problem else ()
    built: BuiltProgram | None = None
    try:
        if not missing:
            built = build_program(manifest, loaded.run_folder, loaded.packages)
    except PluginInvalidError as exc:
        if exc.key not in {"plugin.binary", "plugin.command"}:
            raise
        missing = (Reason("binary_missing", exc.problem, exc.hint),)
    if built is not None:
        writable = [path for each in config.plugins for path in each.grants.write]
        missing = writable_program(writable, manifest.name, built)
    maker = built and SpecMaker(
        manifest=manifest,
        digest=loaded.digest,
        built=built,
        grants=plugin.grants,
        limits=config.limits,
        sandbox=config.sandbox,
        max_workers=plugin.max_workers,
        verifier=DefinitionVerifier(loaded) if manifest.kind.describes_itself else None,
        all_levels=plugin.one_process,
    )
    tools: list[RegisteredTool] = []
    readings = reading_definitions(manifest)
    definitions = [with_grants(each, manifest, config, plugin) for each in (*loaded.tools, *readings)]
    shared = _shared_level(definitions, plugin) if plugin.one_process else None
    for definition in definitions:
        tool_grant = plugin.tool_grant(definition.name)
        isolation = tool_grant.isolation or definition.isolation
        reach = reach_of(definition, plugin.grants, tool_grant, private=config.egress.private)
        if shared is Level.EXTERNAL:  # the process has a relay for its tools of that level, and the others are in it
            reach = replace(reach, relay=bool(reach.hosts))
        standing = standing_reasons(definition, plugin.grants, tool_grant, hosts_a_server=bool(readings))
        reasons = (*missing, *standing)
        spec = None
        if maker and not reasons:
            spec = maker.spec(shared or definition.side_effects, definition.limits, reach, isolation)
        tool = _tool(config, plugin, loaded, definition, spec or reasons)
        if maker and spec and definition.prepares_arguments:
            tool = replace(tool, prepares=maker.spec(Level.NONE, definition.limits, isolation=isolation))
        tools.append(tool)
    secrets = tuple(sorted({name for tool in tools if tool.spec for name in tool.spec.secrets}))
    if secrets:
        tools = [replace(tool, plugin_secrets=secrets) for tool in tools]
    tools, reads = tools[: len(loaded.tools)], tools[len(loaded.tools) :]
    of_use = tools or reads  # a server may have no tools
    serving = any(tool.spec for tool in of_use)
    registered = RegisteredPlugin(
        name=manifest.name,
        version=manifest.version,
        kind=manifest.kind,
        path=plugin.path,
        digest=loaded.digest,
        state=PluginState.SERVING if serving else PluginState.UNAVAILABLE,
        reasons=() if serving else tuple(dict.fromkeys(reason for tool in of_use for reason in tool.reasons)),
        grants=plugin.grants,
        tools=tuple(tools),
        reads=tuple(reads),
        limits=config.limits.default,
    )
    return Registration(config=plugin, plugin=registered, loaded=loaded, built=built)


def _shared_level(definitions: Sequence[ToolDefinition], plugin: PluginConfig) -> Level:
    """The highest level of those of its tools that are granted."""
    levels = list(Level)
    granted = (each.side_effects for each in definitions if plugin.grants.max_side_effects.allows(each.side_effects))
    return max(granted, key=levels.index, default=Level.NONE)


def refuse(plugin: PluginConfig, name: str, reasons: tuple[Reason, ...]) -> Registration:
    """Register a plugin as refused. None of its tools is listed."""
    registered = RegisteredPlugin(
        name=name,
        version="",
        kind=None,
        path=plugin.path,
        digest="",
        state=PluginState.REFUSED,
        reasons=reasons,
        grants=plugin.grants,
    )
    return Registration(config=plugin, plugin=registered)


def refuse_changed(
    config: SidecarConfig,
    plugin: PluginConfig,
    loaded: LoadedPlugin,
    pinned: Pinned,
    reasons: tuple[Reason, ...],
    *,
    diff: str,
) -> Registration:
    """Register a plugin that differs from its pin as refused. Its pinned tools stay listed, unavailable.

    The first of `reasons` is theirs. Give those tools alone whose names no other plugin has. `diff` is shown with the
    plugin alone, to operators: a model must not read definitions that nobody accepted.
    """
    reason = reasons[0]
    tools = tuple(_tool(config, plugin, loaded, definition, (reason,)) for definition in pinned.tools)
    readings = reading_definitions(loaded.manifest)
    shown = replace(reason, message=f"{reason.message}\n{diff}") if diff else reason
    refused = replace(
        refuse(plugin, loaded.manifest.name, (shown, *reasons[1:])).plugin,
        version=loaded.manifest.version,
        kind=loaded.manifest.kind,
        digest=loaded.digest,
        tools=tuple(replace(tool, plugin_version=pinned.version) for tool in tools),
        reads=tuple(_tool(config, plugin, loaded, each, (reason,)) for each in readings),
    )
    return Registration(config=plugin, plugin=refused)


def unknown_tools(config: SidecarConfig, plugin: PluginConfig, loaded: LoadedPlugin) -> tuple[Reason, ...]:
    """The `[plugin.tools.NAME]` of the configuration that name no tool: a `deny` with a typo must not pass."""
    tools = loaded.tools
    readings = [each.name for each in reading_definitions(loaded.manifest)]
    known = [tool.name for tool in tools]
    reasons: list[Reason] = []
    for name in plugin.tools:
        if name not in known and name not in readings:
            where = f"{config.path}:{plugin.tool_lines.get(name, 0)}"
            hint = nearest(name, known)
            message = f"{where}: [plugin.tools.{name}] names no tool of the plugin" + (f" ({hint})" if hint else "")
            reasons.append(Reason("unknown_tool", message, "correct the name or remove the table"))
    return tuple(reasons)


def exposed_name(plugin: PluginConfig, name: str) -> str:
    """What callers know a tool by: the operator's alias, or its own name after its plugin's prefix."""
    grant = plugin.tools.get(name)
    return (grant.alias if grant else "") or plugin.prefix + name


def _tool(
    config: SidecarConfig,
    plugin: PluginConfig,
    loaded: LoadedPlugin,
    definition: ToolDefinition,
    made: WorkerSpec | tuple[Reason, ...],
) -> RegisteredTool:
    """One tool with its spec, or with the reasons why it has none."""
    grant = plugin.tools.get(definition.name, ToolGrant())
    name = exposed_name(plugin, definition.name)
    if definition.name in _READINGS:
        name = McpReading(definition.name).tool(loaded.manifest.name)
    bounds = [definition.timeout_s, config.limits.cap_timeout_s]
    if grant.timeout_s is not None:
        bounds.append(grant.timeout_s)
    idle_bounds = [each for each in (definition.idle_timeout_s, grant.idle_timeout_s) if each is not None]
    return RegisteredTool(
        definition=definition,
        definition_digest=definition_digest(definition),
        plugin=loaded.manifest.name,
        plugin_version=loaded.manifest.version,
        permission=grant.permission or DEFAULT_PERMISSION[definition.side_effects],
        permission_set=grant.permission is not None,
        timeout_s=min(bounds),
        idle_timeout_s=min(idle_bounds, default=None),
        spec=made if isinstance(made, WorkerSpec) else None,
        reasons=made if isinstance(made, tuple) else (),
        alias="" if name == definition.name else name,
        payloads=grant.payloads or config.journal.payloads,
        cache_s=grant.cache_s,
        cache_shared=grant.cache_shared,
    )
