"""Reads the `[[tool]]` tables of a manifest into definitions, with the argument template of kind `cli`."""

from __future__ import annotations

from dataclasses import replace

from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.errors import ConfigError
from fumehood_server.model.nearest import nearest
from fumehood_server.model.plugin import Kind
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.cli_template import check_template
from fumehood_server.plugins.definitions import FieldProblem, PluginSchemas, RawDefinition
from fumehood_server.plugins.manifest_file import VARIABLE_NAME, ManifestFile, PluginTable, ToolTable
from fumehood_server.plugins.manifest_start import EXAMPLES, binary_problem

_CLI_KEYS = ("argv", "success_exit_codes", "binary", "stdin", "environment", "working_folder", "output")
"""Keys of a tool that kind `cli` alone has."""

_OUTPUTS = ("text", "json")


def read_tools(file: ManifestFile, source: TomlSource, problems: list[ConfigError]) -> list[ToolDefinition]:
    """The tools that are right, in the order of the file. What is wrong with the others is added to `problems`."""
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
    schemas = PluginSchemas()
    for index, table in enumerate(file.tool):
        definition, found = _read_tool(table, file.plugin, schemas)
        if any(definition and definition.name == each.name for each in tools):
            found = (*found, FieldProblem("name", "is the name of two tools", "rename one"))
        for each in found:
            key: Key = ("tool", index, *(int(part) if part.isdigit() else part for part in each.field.split(".")))
            problems.append(source.problem(key, f'tool "{table.name}": `{each.field}` {each.problem}', each.hint))
        if definition:
            tools.append(definition)
    return tools


def _read_tool(
    table: ToolTable, plugin: PluginTable, schemas: PluginSchemas
) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...]]:
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
    definition, problems = schemas.check(raw)
    return definition, (*problems, *_check_argv(table, plugin.kind, definition))


def _check_argv(table: ToolTable, kind: Kind, definition: ToolDefinition | None) -> tuple[FieldProblem, ...]:
    if kind is not Kind.CLI:
        keys = [key for key in _CLI_KEYS if getattr(table, key) is not None]
        return tuple(FieldProblem(key, 'is for kind "cli" alone', "remove it") for key in keys)
    problems: list[FieldProblem] = []
    if table.prepares_arguments:
        problems.append(FieldProblem("prepares_arguments", 'is not for kind "cli"', "its program speaks no frames"))
    if table.binary is not None and (problem := binary_problem(table.binary)):
        problems.append(FieldProblem("binary", problem, f"write {EXAMPLES['binary']}"))
    if table.output not in (None, *_OUTPUTS):
        problems.append(FieldProblem("output", f'unknown word "{table.output[:80]}"', nearest(table.output, _OUTPUTS)))
    wrong = [name for name in table.environment or () if not VARIABLE_NAME.fullmatch(name)]
    problems += (FieldProblem("environment", f'"{name[:80]}" is not the name of a variable') for name in wrong)
    if table.argv is None:
        problems.append(FieldProblem("argv", "is missing", 'the arguments of the program, such as ["--", "{path}"]'))
    if definition is None:
        return tuple(problems)
    texts = {"stdin": table.stdin, "working_folder": table.working_folder}
    texts |= {f"environment.{name}": text for name, text in (table.environment or {}).items()}
    given = {place: text for place, text in texts.items() if text is not None}
    return (*problems, *check_template(table.argv or (), definition.input_schema_json, given))
