"""Checks the definitions that a plugin's code declares, and the isolation that its import allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fumehood.v1 import tool_pb2

from fumehood_server.errors import ConfigError, PluginInvalidError
from fumehood_server.model.capability import CapabilityKind
from fumehood_server.model.plugin import Kind
from fumehood_server.model.tool import Isolation, ToolDefinition
from fumehood_server.plugins.conversion import from_proto
from fumehood_server.plugins.definitions import FieldProblem, PluginSchemas, RawDefinition
from fumehood_server.plugins.manifest import MANIFEST_NAME, Manifest
from fumehood_server.plugins.mcp_patterns import with_unchecked_patterns
from fumehood_server.plugins.mcp_tools import with_manifest, without_schemas
from fumehood_server.plugins.refusal import invalid

FORK_REMEDY = (
    "have the tools start threads and processes and open files and sockets, not the import; or declare "
    'isolation="process": one process then serves many calls'
)

_MAX_TOOLS = 1024
_MOST_PROBLEMS = 20
"""Whoever mends a plugin needs no more at once, and its code writes as many as it likes."""
_MAX_PROBLEM_CHARS = 1000


def refuse_forks(manifest: Manifest, tools: Sequence[ToolDefinition], fork_problem: str) -> None:
    """Refuse a tool that names the isolation `call` in a plugin whose import can't be forked.

    Raises:
        PluginRefusedError: there is one.
    """
    path = manifest.folder / MANIFEST_NAME
    problems = tuple(
        PluginInvalidError(
            path, f'tool "{tool.name}": `isolation` "call" can\'t be had: {fork_problem}', hint=FORK_REMEDY
        )
        for tool in tools
        if tool.isolation is Isolation.CALL and CapabilityKind.PROXY not in tool.requires  # with it, none is forked
    )
    if problems:
        raise invalid(manifest.name, _first(path, problems))


def checked_tools(
    manifest: Manifest,
    declared: Sequence[tool_pb2.ToolDefinition],
    default_isolation: Callable[[str], Isolation],
) -> tuple[ToolDefinition, ...]:
    """The definitions that a plugin's code declares. A tool that names no isolation has the default of its name.

    Kind `mcp`: there may be none, of a server with resources or prompts; patterns that can't be matched are left to the
    server where they may be, and a tool whose schemas can't be taken all the same has its `schema_problem`.

    Raises:
        PluginRefusedError: something is wrong with them.
    """
    path = manifest.folder / MANIFEST_NAME
    problems: list[ConfigError] = []
    tools: dict[str, ToolDefinition] = {}
    if not declared and manifest.kind is not Kind.MCP:
        problems.append(PluginInvalidError(path, "the plugin declares no tool", hint="decorate one with @plugin.tool"))
    if len(declared) > _MAX_TOOLS:
        problems.append(PluginInvalidError(path, f"the plugin declares more than {_MAX_TOOLS} tools"))
    schemas = PluginSchemas()
    for message in declared[:_MAX_TOOLS]:
        raw = with_manifest(manifest, from_proto(message))
        raw = replace(raw, isolation=raw.isolation or default_isolation(raw.name))
        definition, found = schemas.check(raw)
        if found and manifest.kind is Kind.MCP:
            definition, found = _of_server(raw, found, schemas)
        if definition and definition.name in tools:
            found = (FieldProblem("name", "is the name of two tools", "rename one"),)
        elif definition:
            tools[definition.name] = definition
        problems += [
            PluginInvalidError(
                path,
                f'tool "{message.name[:64]}": `{each.field}` {each.problem[:_MAX_PROBLEM_CHARS]}',
                key=each.field,
                hint=each.hint,
            )
            for each in found
        ]
    if problems:
        raise invalid(manifest.name, _first(path, problems))
    return tuple(tools.values())


def _first(path: Path, problems: Sequence[ConfigError]) -> tuple[ConfigError, ...]:
    """The first of them, and how many are left out."""
    left = len(problems) - _MOST_PROBLEMS
    if left <= 0:
        return tuple(problems)
    return (*problems[:_MOST_PROBLEMS], PluginInvalidError(path, f"more problems of its tools, left out here: {left}"))


def _of_server(
    raw: RawDefinition, problems: Sequence[FieldProblem], schemas: PluginSchemas
) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...]]:
    """As `PluginSchemas.check`, of a server's tool that isn't taken as it is."""
    relaxed = with_unchecked_patterns(raw)
    if relaxed != raw:
        definition, problems = schemas.check(relaxed)
        if definition is not None:
            return definition, ()
    return schemas.check(without_schemas(raw, problems))
