"""Tools of kind `mcp`: what their manifest adds to a server's definitions, and what grants make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from fumehood_sandbox import Level

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.mcp_reading import McpReading
from fumehood_server.model.plugin import Kind, ToolGrant
from fumehood_server.model.text import printable
from fumehood_server.model.tool import TASK_REQUIRED, Isolation, ToolDefinition
from fumehood_server.plugins.asking_grants import misplaced_listing
from fumehood_server.plugins.definitions import SCHEMA_FIELDS, FieldProblem, RawDefinition
from fumehood_server.plugins.manifest import Manifest
from fumehood_server.plugins.mcp_patterns import unchecked_patterns

_READINGS = frozenset(McpReading)
_NOTHING_FITS = '{"not":{},"type":"object"}'
_MAX_PROBLEM_CHARS = 400
_POINTERS_SHOWN = 4


def with_manifest(manifest: Manifest, raw: RawDefinition) -> RawDefinition:
    """A definition that a process of kind `mcp` sends, with what its manifest says of all its tools.

    What could widen it counts for nothing: a server declares its tools' names, texts, schemas and claims. One that its
    server runs as a task alone asks for nothing, since it is never called.
    """
    if manifest.kind is not Kind.MCP:
        return raw
    level = Level.EXTERNAL if manifest.remote else level_of_claims(raw.claims)
    is_called = TASK_REQUIRED not in raw.claims
    return RawDefinition(
        name=raw.name,
        title=raw.title,
        description=raw.description,
        input_schema_json=raw.input_schema_json,
        output_schema_json=raw.output_schema_json,
        side_effects=level if is_called else Level.NONE,
        requires=server_requires(manifest) if is_called else (),
        timeout_s=manifest.timeout_s,
        isolation=manifest.isolation or "",
        limits={name: value for name, value in asdict(manifest.limits).items() if value is not None},
        claims=raw.claims,
    )


def without_schemas(raw: RawDefinition, problems: Sequence[FieldProblem]) -> RawDefinition:
    """A definition of a server's tool whose schemas aren't taken: listed, asking for nothing, and never called.

    One whose schemas have no part in `problems` stays as it is. An operator can't mend a server, whose other tools are
    not to be lost for one.
    """
    found = [f"`{each.field}` {each.problem}" for each in problems if each.field in SCHEMA_FIELDS]
    if not found:
        return raw
    return replace(
        raw,
        input_schema_json=_NOTHING_FITS,
        output_schema_json="",
        side_effects=Level.NONE,
        requires=(),
        schema_problem=printable("; ".join(found)[:_MAX_PROBLEM_CHARS]),
    )


def server_requires(manifest: Manifest) -> tuple[str, ...]:
    """What every tool of a server requires: the secrets that it is handed, and where it is, the way there."""
    if manifest.remote is not None:
        return tuple(sorted(manifest.remote.capabilities))
    return tuple(sorted({f"secret:{secret}" for _, secret in manifest.secrets}))


def level_of_claims(claims: tuple[str, ...]) -> str:
    """The level that a server's annotations of a tool come to; none is as the protocol has it, open and not read-only.

    A claim is a ceiling, not a right: the tool's process can do no more than its level.
    """
    if "readOnlyHint: true" in claims:
        return Level.READ
    return Level.WRITE if "openWorldHint: false" in claims else Level.EXTERNAL


def server_advice(tool: ToolDefinition) -> list[str]:
    """What an operator should know of a server's tool before it is pinned.

    That is what isn't checked before it is called, and where its level may be too low or high.
    """
    if tool.never_called:
        return [f"it is listed as unavailable and can't be called: {tool.never_called}"]
    return [*pattern_advice(tool), *_level_advice(tool)]


def pattern_advice(tool: ToolDefinition) -> list[str]:
    """What isn't checked before a server's tool is called."""
    found = unchecked_patterns(tool)
    if not found:
        return []
    more = f" and {len(found) - _POINTERS_SHOWN} more" if len(found) > _POINTERS_SHOWN else ""
    where = printable(", ".join(found[:_POINTERS_SHOWN]))
    return [f"the server alone checks patterns that can't be matched in linear time: {where}{more}"]


def _level_advice(tool: ToolDefinition) -> list[str]:
    where = f"[plugin.tools.{tool.name}]"
    if "proxy" in tool.requires:  # of a server that is reached over HTTP: always external
        return []
    if "readOnlyHint: true" in tool.claims and "openWorldHint: true" in tool.claims:
        return [
            f'it says that it only reads, from an open world: if it needs a network, {where} side_effects = "external"'
        ]
    if not tool.claims:
        return [f"it says nothing of its effects, so it counts as external: {where} side_effects sets another level"]
    return []


def with_grants(
    definition: ToolDefinition, manifest: Manifest, config: SidecarConfig, plugin: PluginConfig
) -> ToolDefinition:
    """The definition in force: at the operator's level, with what the plugin is granted of what that level may use.

    Raises:
        PluginInvalidError: the operator sets what is for kind `mcp` alone, of another kind.
    """
    grant = plugin.tools.get(definition.name, ToolGrant())
    if plugin.list_with_grants and (misplaced := misplaced_listing(manifest)):
        raise PluginInvalidError(config.path or plugin.path, misplaced, hint="remove it")
    if manifest.kind is not Kind.MCP:
        for key in ("side_effects", "idempotent"):
            if getattr(grant, key) is not None:
                where = f"[plugin.tools.{definition.name}]"
                problem = f'`{key}` in {where} is for plugins of kind "mcp" alone, and this one\'s author declares it'
                raise PluginInvalidError(config.path or plugin.path, problem, hint="remove it")
        if plugin.one_process:
            problem = '`one_process` in [[plugin]] is for plugins of kind "mcp" alone'
            raise PluginInvalidError(config.path or plugin.path, problem, hint="remove it")
        return definition
    if grant.alias and definition.name in _READINGS:
        problem = f"`alias` in [plugin.tools.{definition.name}] is not for a reserved tool, whose name is its plugin's"
        raise PluginInvalidError(config.path or plugin.path, problem, hint="remove it")
    if grant.side_effects is not None and manifest.remote is not None:
        where = f"[plugin.tools.{definition.name}]"
        problem = f"`side_effects` in {where} is not for a server with `url`, whose tools are all external"
        raise PluginInvalidError(config.path or plugin.path, problem, hint="remove it")
    if plugin.one_process and (grant.isolation or definition.isolation) is Isolation.CALL:
        problem = '`isolation = "call"` wants a process for each call, and `one_process` in [[plugin]] one for all'
        raise PluginInvalidError(config.path or plugin.path, problem, hint="remove one of them")
    level = grant.side_effects or definition.side_effects
    hosts = plugin.grants.hosts if grant.hosts is None else grant.hosts
    usable = {
        "read": bool(plugin.grants.read) and level.allows(Level.READ),
        "write": bool(plugin.grants.write) and level.allows(Level.WRITE),
        "proxy": bool(hosts) and level.allows(Level.EXTERNAL),
    }
    requires = (*definition.requires, *(each for each, granted in usable.items() if granted))
    return replace(
        definition,
        side_effects=level,
        requires=tuple(sorted(set(requires))),
        idempotent=definition.idempotent if grant.idempotent is None else grant.idempotent,
    )
