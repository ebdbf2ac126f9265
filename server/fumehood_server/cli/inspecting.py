"""Looks at a plugin's folder without a sidecar: for `plugin check`, `plugin add` and `plugin dev`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fumehood_sandbox import Backend, Level, SandboxUnavailableError, check

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.config import SidecarConfig, find_config, load_config
from fumehood_server.config.config import SandboxConfig
from fumehood_server.errors import ConfigError
from fumehood_server.model.tool import Isolation
from fumehood_server.plugins import CheckReport, PinProposal, check_plugin, propose_pin
from fumehood_server.workers import LogLine, LogSink, describe

if TYPE_CHECKING:
    from rich.console import Console

    from fumehood_server.model.tool import ToolDefinition

_T = TypeVar("_T")
_Said = Callable[[LogLine], None]


def inspect(folder: Path, said: _Said) -> CheckReport:
    """What a sidecar would say of the folder. `said` is told what the plugin writes while it describes itself.

    Raises:
        CommandError: this machine can't sandbox.
    """
    sandbox = sandbox_here()
    return _sandboxed(said, sandbox.minimum, lambda ask: check_plugin(folder.resolve(), describe=ask, sandbox=sandbox))


def propose(folder: Path, config: SidecarConfig, said: _Said) -> PinProposal:
    """The same, beside what the lock has under the plugin's name.

    Raises:
        CommandError: this machine can't sandbox.
        ConfigError: the lock can't be read.
    """
    return _sandboxed(
        said,
        config.sandbox.minimum,
        lambda ask: propose_pin(
            folder.resolve(), config.lock_path, describe=ask, limits=config.limits, sandbox=config.sandbox
        ),
    )


def sandbox_here() -> SandboxConfig:
    """What the working directory's fumehood.toml says of sandboxes.

    The backend is the operator's choice and not the plugin's, so a plugin is looked at as it would be served here.
    """
    return sandbox_of(None)


def sandbox_of(config_path: Path | None) -> SandboxConfig:
    """What a configuration says of sandboxes; the default where there is none, or a broken one."""
    try:
        return load_config(find_config(config_path)).sandbox
    except ConfigError:
        return SandboxConfig()


def _sandboxed(said: _Said, minimum: Backend, look: Callable[[Any], Awaitable[_T]]) -> _T:
    try:
        check(minimum)
    except SandboxUnavailableError as error:
        raise CommandError(
            str(error),
            "`fumehood doctor` says what this machine lacks and how to get it.",
            code="CONFIG_SANDBOX_UNAVAILABLE",
            status=ExitStatus.FAILED,
        ) from error

    async def run() -> _T:
        return await look(partial(describe, logs=LogSink(lambda _plugin, line: said(line))))

    return asyncio.run(run())


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
    """Each problem, with its place in a file where it has one."""
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
        file, line = _place(each.message, report.folder)
        shape = {"code": each.code, "message": each.message, "remedy": each.remedy, "file": file, "line": line}
        found.append({**shape, "key": None})
    return found


_TRACEBACK_PLACE = re.compile(r'File "([^"\n]+)", line ([0-9]+)')


def _place(message: str, folder: Path) -> tuple[str | None, int | None]:
    """Where in the plugin's own files a traceback ends. The rest of it is Python's and the SDK's."""
    places = [(path, int(line)) for path, line in _TRACEBACK_PLACE.findall(message)]
    return next((each for each in reversed(places) if Path(each[0]).is_relative_to(folder)), (None, None))


def _tool_json(tool: ToolDefinition, digest: str) -> dict[str, Any]:
    from fumehood_server.plugins.definitions import definition_json

    return {**definition_json(tool), "definition_digest": digest}


def print_problems(console: Console, report: CheckReport) -> None:
    """Print what is wrong: `file:line: what`, and beneath it what to do. Of a traceback the end alone."""
    from fumehood_server.cli import output

    for each in problems_json(report):
        if each["line"] and not report.faults:
            each["message"] = each["message"].strip().splitlines()[-1]
        where = f"{each['file']}:{each['line']}: " if each["line"] else f"{each['file']}: " if each["file"] else ""
        console.print(output.styled(f"{where}{each['message']}", "red"), soft_wrap=True)
        if each["remedy"]:
            console.print(output.styled(f"  {each['remedy']}", "cyan"), soft_wrap=True)


def print_asks(console: Console, report: CheckReport) -> None:
    """Print what the plugin asks for: its tools with level and capabilities, the gravest first."""
    from fumehood_server.cli import output

    loaded = report.loaded
    if loaded is None:
        return
    manifest = loaded.manifest
    console.print(output.styled(f"{manifest.name} {manifest.version}", "bold"), output.styled(f"{manifest.kind}"))
    console.print(output.styled(f"  {loaded.digest}", "dim"), soft_wrap=True)
    console.print()
    order = list(Level)
    table = output.table("TOOL", "LEVEL", "NEEDS", "TERMS")
    table.add_column("WHAT IT DOES", no_wrap=True, overflow="ellipsis")
    for tool in sorted(report.tools, key=lambda tool: (-order.index(tool.side_effects), tool.name)):
        level = str(tool.side_effects)
        terms = f"{tool.timeout_s:g} s, {'idempotent' if tool.idempotent else 'not idempotent'}"
        terms += ", a process for each call" if tool.isolation is Isolation.CALL else ""
        table.add_row(
            output.styled(tool.name, "bold"),
            output.styled(level, output.LEVEL_STYLES.get(level, "")),
            output.styled(", ".join(tool.requires)),
            output.styled(terms, "dim"),
            output.styled(output.summary(tool.description)),
        )
    output.show_rows(console, table)


def print_warnings(console: Console, report: CheckReport) -> None:
    """Print what is allowed and worth a second look."""
    from fumehood_server.cli import output

    for each in report.warnings:
        who = f"{each.tool}: " if each.tool else ""
        console.print(output.styled(f"worth a look: {who}{each.message}", "yellow"), soft_wrap=True)


def highest_level(report: CheckReport) -> Level:
    """The highest level that a tool asks for."""
    return report.levels[-1] if report.levels else Level.NONE
