"""`fumehood plugin check`: checks a folder and prints its problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import ExitStatus

if TYPE_CHECKING:
    from fumehood_server.workers import LogLine


@click.command(short_help="Say what is wrong with a plugin, and what it asks for.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option(
    "--with-grants", is_flag=True, help="Ask it as `list_with_grants` of its [[plugin]] in ./fumehood.toml says."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(folder: Path, with_grants: bool, as_json: bool) -> int:
    """Read the plugin in FOLDER as a sidecar would, and say everything that is wrong with it, each with file and line.

    The plugin is started for it in its sandbox, with nothing granted, until it says that it is ready; a python plugin
    is imported at level none. A server over HTTP is asked with what ./fumehood.toml grants it; another MCP server that
    needs its grants to list its tools, with --with-grants. [limits] and [sandbox] there count as well. Exit status 1
    when something is wrong, 2 when ./fumehood.toml is not valid.

    \b
    Examples:
      fumehood plugin check dice
      fumehood plugin check --json | jq -r '.problems[] | "\\(.file):\\(.line): \\(.message)"'
    """
    from fumehood_server.cli import check_output, folder_check, output

    said: list[LogLine] = []
    report = folder_check.check_folder(folder, folder_check.config_here(), said.append, with_grants=with_grants)
    status = ExitStatus.OK if report.ok else ExitStatus.FAILED
    if as_json:
        output.print_json(check_output.report_json(report))
        return status
    console = output.console()
    if report.ok:
        check_output.print_asks(console, report)
        console.print()
        check_output.print_warnings(console, report)
        console.print(output.styled("No problems.", "green"))
        return status
    check_output.print_problems(console, report)
    lines = [line.message for line in said if line.source != "sidecar"]
    if lines:  # its last lines are part of a problem's message, which print_problems cuts for that reason
        console.print()
        console.print("What it wrote meanwhile:", style="dim")
        for line in lines[-20:]:
            console.print(output.styled(f"  {line}"), soft_wrap=True)
    return status
