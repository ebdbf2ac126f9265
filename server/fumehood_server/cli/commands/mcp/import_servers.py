"""`fumehood mcp import`: makes sandboxed plugins of the MCP servers in another program's configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fumehood_server.cli.mcp_import.host_configuration import HostConfiguration
    from fumehood_server.cli.mcp_import.outcome import Outcome


@click.command("import", short_help="Take over the MCP servers of another program.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--server", "wanted", multiple=True, metavar="NAME", help="Only this server; again.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("--into", type=click.Path(path_type=Path), metavar="FOLDER", help="[default: mcp, beside the config]")
@click.option(
    "--from",
    "host_name",
    type=click.Choice(["claude-desktop", "vscode", "cursor", "claude-code"]),
    help="Whose configuration it is, where its name doesn't tell.",
)
@click.option("--workspace", type=click.Path(path_type=Path), metavar="FOLDER", help="For ${workspaceFolder}.")
@click.option("--input", "inputs", multiple=True, metavar="ID=VALUE", help="Value of an input; again.")
@click.option(
    "--plain", multiple=True, metavar="VARIABLE", help="A variable or header field that is no secret, or url; again."
)
@click.option("--upgrade", is_flag=True, help="Choose versions anew, where none is named.")
@click.option("--dry-run", is_flag=True, help="Say what would be done. Nothing is fetched or written.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask: grant the narrowest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --yes or --dry-run.")
def import_servers(
    file: Path,
    wanted: tuple[str, ...],
    config_path: Path | None,
    into: Path | None,
    host_name: str | None,
    workspace: Path | None,
    inputs: tuple[str, ...],
    plain: tuple[str, ...],
    upgrade: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Make a sandboxed plugin of each MCP server in FILE.

    FILE is the mcp.json, .mcp.json or claude_desktop_config.json of Claude Desktop, VS Code, Cursor or Claude Code. It
    stays as it is.

    Servers that npx or uvx start are installed once, at exact versions held to digests, and started without network.
    You are asked for each folder, host and secret that the configuration names. --yes grants the narrowest: folders
    for reading, the hosts and secrets that are named, and the lowest level at which the server has a tool. Values that
    look like secrets go to files of their own, and into no plugin.

    Imported again, a server that has changed is shown as a diff. Grants in fumehood.toml are yours, and stay.

    \b
    Examples:
      fumehood mcp import ~/.config/Claude/claude_desktop_config.json --dry-run
      fumehood mcp import .vscode/mcp.json
      fumehood mcp import .mcp.json --server github --yes --json
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.mcp_import.asking import Narrowest, Terminal
    from fumehood_server.cli.mcp_import.host_configuration import Host, read_host_configuration
    from fumehood_server.cli.mcp_import.import_settings import Import
    from fumehood_server.cli.mcp_import.report import print_outcome
    from fumehood_server.cli.mcp_import.run import import_all

    if as_json and not (yes or dry_run):
        raise CommandError("--json can't ask", "Give --yes or --dry-run as well.")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise CommandError("there is nobody to ask", "Give --yes or --dry-run.", code="NOT_A_TERMINAL")
    found = read_host_configuration(file, host=Host(host_name) if host_name else None, workspace=workspace)
    _check_wanted(found, wanted)
    run = Import(
        config_path=config_path,
        into=into.absolute() if into else None,
        host=found.host,
        asker=Narrowest() if yes or dry_run else Terminal(),
        dry_run=dry_run,
        upgrade=upgrade,
        quiet=as_json,
    )
    shown = None if as_json else print_outcome
    outcomes = import_all(found, run, wanted=wanted, given=_pairs(inputs), plain=plain, show=shown)
    if as_json:
        output.print_json(
            {
                "file": str(found.path),
                "host": str(found.host),
                "unknown_keys": list(found.unknown),
                "keys_given_twice": list(found.twice),
                "servers": [each.to_json() for each in outcomes],
            }
        )
    else:
        _say_more(found, outcomes)
    return ExitStatus.FAILED if any(each.status.is_problem for each in outcomes) else ExitStatus.OK


def _check_wanted(found: HostConfiguration, wanted: Sequence[str]) -> None:
    from fumehood_server.model.nearest import nearest

    names = [each.name for each in found.servers]
    for name in wanted:
        if name not in names:
            raise CommandError(f"{found.path} names no server {name}", nearest(name, names), code="NOT_FOUND")


def _pairs(inputs: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in inputs:
        name, equals, value = each.partition("=")
        if not equals:
            raise CommandError("--input takes ID=VALUE", "The ID is that of an element of `inputs`.")
        pairs[name] = value
    return pairs


def _say_more(found: HostConfiguration, outcomes: Sequence[Outcome]) -> None:
    from fumehood_server.cli.configured import CONFIG_CHANGED
    from fumehood_server.cli.mcp_import.outcome import Status
    from fumehood_server.cli.output import note, say

    for key in found.unknown:
        note(f"{found.path}: the key {key} isn't known here")
    for key in found.twice:
        note(f"{found.path}: the key {key} is given twice, and the last one counts")
    if not outcomes:
        say("There are no servers in it.")
    if any(each.status in {Status.IMPORTED, Status.UPDATED} for each in outcomes):
        say(CONFIG_CHANGED)
        entry = '{"command": "fumehood", "args": ["mcp"]}'
        say(f"In the program's own configuration, one server takes their place: {entry}")
