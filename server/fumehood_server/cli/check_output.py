"""Output of `plugin check` and `plugin add`: a check's report as JSON, and printed for people."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood_sandbox import Level

from fumehood_server.cli import output
from fumehood_server.model.plugin import Kind
from fumehood_server.model.text import printable
from fumehood_server.model.tool import DEFAULT_PERMISSION, Isolation, Permission
from fumehood_server.plugins import CheckReport
from fumehood_server.plugins.definitions import definition_json

if TYPE_CHECKING:
    from rich.console import Console

    from fumehood_server.config.config import PluginConfig
    from fumehood_server.model.tool import ToolDefinition


def report_json(report: CheckReport) -> dict[str, Any]:
    """What `plugin check --json` prints."""
    loaded = report.loaded
    return {
        "ok": report.ok,
        "name": report.name,
        "path": str(report.folder),
        "version": loaded.manifest.version if loaded else None,
        "kind": str(loaded.manifest.kind) if loaded else None,
        "digest": loaded.digest if loaded else None,
        "problems": problems_json(report),
        "warnings": [{"tool": each.tool or None, "message": each.message} for each in report.warnings],
        "asks_for": {
            "side_effects": [str(level) for level in report.levels],
            "capabilities": sorted({text for tool in report.tools for text in tool.requires}),
        },
        "tools": [_tool_json(tool, report.definition_digests[tool.name]) for tool in report.tools],
    }


def problems_json(report: CheckReport) -> list[dict[str, Any]]:
    """Each problem, with its file and line where it has one."""
    if report.faults:
        return [
            {
                "code": "plugin_invalid",
                "message": fault.problem,
                "remedy": fault.hint,
                "file": str(fault.path),
                "line": fault.line or None,
                "key": fault.key or None,
            }
            for fault in report.faults
        ]
    found: list[dict[str, Any]] = []
    for each in report.problems:
        file, line = _innermost_frame(each.message, report.folder)
        found_json = {"code": each.code, "message": each.message, "remedy": each.remedy, "file": file, "line": line}
        found.append({**found_json, "key": None})
    return found


_ISOLATION_TERMS = {Isolation.CALL: "a process for each call", Isolation.PROCESS: "one process for many calls"}
_TRACEBACK_FRAME = re.compile(r'File "([^"\n]+)", line ([0-9]+)')


def _innermost_frame(message: str, folder: Path) -> tuple[str | None, int | None]:
    """The innermost frame of a traceback that lies in the plugin's own files, as file and line."""
    places = [(path, int(line)) for path, line in _TRACEBACK_FRAME.findall(message)]
    return next((each for each in reversed(places) if Path(each[0]).is_relative_to(folder)), (None, None))


def _tool_json(tool: ToolDefinition, digest: str) -> dict[str, Any]:
    return {**definition_json(tool), "definition_digest": digest}


def print_problems(console: Console, report: CheckReport) -> None:
    """Print each problem as `file:line: message` with its remedy below. Of a traceback, the last line alone.

    What a plugin has a part in never begins a line: it could read as ours.
    """
    for each in problems_json(report):
        if each["line"] and not report.faults:
            each["message"] = each["message"].strip().splitlines()[-1]
        file = printable(each["file"] or "")
        where = f"{file}:{each['line']}: " if each["line"] else f"{file}: " if file else ""
        lines = [printable(each["message"])] if report.faults else each["message"].split("\n")
        for number, line in enumerate(lines):
            console.print(output.styled("    " + line if number else where + line, "red"), soft_wrap=True)
        if each["remedy"]:
            console.print(output.styled(f"  {printable(each['remedy'])}", "cyan"), soft_wrap=True)


def print_asks(console: Console, report: CheckReport, config: PluginConfig | None = None) -> None:
    """Print what the plugin asks for: its tools with level and capabilities, the highest level first.

    `config`: what the operator says of it so far. None: nothing.
    """
    loaded = report.loaded
    if loaded is None:
        return
    manifest = loaded.manifest
    console.print(output.styled(f"{manifest.name} {manifest.version}", "bold"), output.styled(f"{manifest.kind}"))
    console.print(output.styled(f"  {loaded.digest}", "dim"), soft_wrap=True)
    console.print()
    order = list(Level)
    if manifest.kind is Kind.MCP:
        print_claims(console, report, config)
        return
    table = output.table("TOOL", "LEVEL", "NEEDS", "TERMS", "WHAT IT DOES", prose=(2, 3, 4))
    for tool in sorted(report.tools, key=lambda tool: (-order.index(tool.side_effects), tool.name)):
        level = str(tool.side_effects)
        terms = f"{tool.timeout_s:g} s, {'idempotent' if tool.idempotent else 'not idempotent'}"
        terms += f", {_ISOLATION_TERMS[tool.isolation]}"
        table.add_row(
            output.styled(tool.name, "bold"),
            output.styled(level, output.LEVEL_STYLES.get(level, "")),
            output.styled(", ".join(tool.requires)),
            output.styled(terms, "dim"),
            output.styled(output.summary(tool.description)),
        )
    output.show_rows(console, table)


_CAN = {
    Level.NONE: "nothing outside of itself",
    Level.READ: "read granted paths; no writing, no network",
    Level.WRITE: "read and write granted paths; no network",
    Level.EXTERNAL: "read and write granted paths, reach granted hosts by proxy",
}
"""By level, what a process of kind `mcp` can do at most."""


def print_claims(console: Console, report: CheckReport, config: PluginConfig | None = None) -> None:
    """Print what an MCP server says of its tools, the level that comes of it, and what that leaves them."""
    order = list(Level)
    table = output.table("TOOL", "LEVEL", "CALLS", "CLAIMS", prose=(2, 3))
    for tool in sorted(report.tools, key=lambda tool: (-order.index(tool.side_effects), tool.name)):
        level = str(tool.side_effects)
        table.add_row(
            output.styled(tool.name, "bold"),
            output.styled(level, output.LEVEL_STYLES.get(level, "")),
            output.styled(_calls(tool, config), "dim"),
            output.styled(", ".join(map(_claim, tool.claims)) or "nothing"),
        )
    if report.tools:
        output.show_rows(console, table)
    else:
        console.print("It has no tools: its resources and prompts are read.")
    console.print()
    console.print("What a process of theirs can do at most, by level:")
    facts = output.table("", "")
    for each in reversed(report.levels):
        facts.add_row(output.styled(f"  {each}", output.LEVEL_STYLES.get(each, "")), _CAN[each])
    output.show_rows(console, facts)
    needs = sorted({text for tool in report.tools for text in tool.requires})
    if needs:
        console.print(output.styled(f"Each of them needs {', '.join(needs)}."), soft_wrap=True)


_CALLS = {Permission.ALLOW: "run", Permission.REQUIRE_APPROVAL: "need an approval", Permission.DENY: "are denied"}


def _calls(tool: ToolDefinition, config: PluginConfig | None) -> str:
    """What becomes of its calls, as far as its own permission goes."""
    if tool.takes_task:
        return "are refused: it runs as a task alone"
    if tool.schema_problem:
        return "are refused: its schema is not taken"
    if config is not None and not config.grants.max_side_effects.allows(tool.side_effects):
        return f"are refused: max_side_effects = {config.grants.max_side_effects}"
    grant = None if config is None else config.tools.get(tool.name)
    permission = None if grant is None else grant.permission
    return _CALLS[permission or DEFAULT_PERMISSION[tool.side_effects]]


def _claim(claim: str) -> str:
    """A hint as a word: "readOnlyHint: true" is "readOnly", "openWorldHint: false" is "not openWorld"."""
    name, _, value = claim.partition(": ")
    return ("" if value == "true" else "not ") + name.removesuffix("Hint")


def print_warnings(console: Console, report: CheckReport) -> None:
    """Print the warnings."""
    for each in report.warnings:
        who = f"{each.tool}: " if each.tool else ""
        console.print(output.styled(printable(f"worth a look: {who}{each.message}"), "yellow"), soft_wrap=True)
