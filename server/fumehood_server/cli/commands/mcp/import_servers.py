"""`fumehood mcp import`: makes sandboxed plugins of the MCP servers in another program's configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fumehood_server.cli.mcp_import.configuration_place import ConfigurationPlace
    from fumehood_server.cli.mcp_import.host_configuration import HostConfiguration
    from fumehood_server.cli.mcp_import.outcome import Outcome


@click.command("import", short_help="Take over the MCP servers of another program.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--server", "wanted", multiple=True, metavar="NAME", help="Only this server; again.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Made when it isn't there. [default: ./fumehood.toml, or one outside of what servers are granted]",
)
@click.option("--into", type=click.Path(path_type=Path), metavar="FOLDER", help="[default: mcp, beside the config]")
@click.option(
    "--from",
    "host_name",
    type=click.Choice(["claude-desktop", "vscode", "cursor", "claude-code"]),
    help="Whose configuration it is, where its name doesn't tell.",
)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="For ${workspaceFolder}, and Claude Code's project.",
)
@click.option("--input", "inputs", multiple=True, metavar="ID=VALUE", help="Value of an input; again.")
@click.option(
    "--plain", multiple=True, metavar="VARIABLE", help="A variable or header field that is no secret, or url; again."
)
@click.option(
    "--list-with-grants",
    multiple=True,
    metavar="NAME",
    help="A server that lists its tools only with the network, files or secrets that it is granted; again.",
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
    list_with_grants: tuple[str, ...],
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
    from fumehood_server.cli.interrupts import SignalledError, interrupts
    from fumehood_server.cli.mcp_import.asking import Narrowest, Terminal
    from fumehood_server.cli.mcp_import.configuration_place import place_configuration
    from fumehood_server.cli.mcp_import.host_configuration import Host, read_host_configuration
    from fumehood_server.cli.mcp_import.import_settings import Import
    from fumehood_server.cli.mcp_import.plain_names import check_plain
    from fumehood_server.cli.mcp_import.report import Report
    from fumehood_server.cli.mcp_import.run import import_all, plan_all

    if workspace is not None and not workspace.is_dir():
        raise CommandError(f"--workspace {workspace} is no folder", "Name the project's folder.", code="NOT_FOUND")
    found = read_host_configuration(file, host=Host(host_name) if host_name else None, workspace=workspace)
    _check_wanted(found, (*wanted, *list_with_grants))
    given = _pairs(inputs)
    _check_inputs(found, given)
    for each in list_with_grants:
        if wanted and each not in wanted:
            what = f"--list-with-grants {each} is of a server that --server leaves out"
            raise CommandError(what, f"Give --server {each} as well.")
    check_plain(found, plain, given)
    if as_json and not (yes or dry_run):
        raise CommandError("--json can't ask", "Give --yes or --dry-run as well.")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise CommandError("there is nobody to ask", "Give --yes or --dry-run.", code="NOT_A_TERMINAL")
    asker = Narrowest() if yes or dry_run else Terminal()
    planned = plan_all(found, asker, wanted=wanted, given=given, plain=plain)
    place = place_configuration(config_path, [each.plan for each in planned if each.plan], found.workspace)
    if place.held_by is not None and not as_json:
        _say_place(place, place.held_by)
    if not dry_run:
        place.make_folder()
    run = Import(
        config_path=place.path,
        into=into.absolute() if into else None,
        host=found.host,
        asker=asker,
        dry_run=dry_run,
        upgrade=upgrade,
        listed_with_grants=list_with_grants,
        quiet=as_json and not sys.stderr.isatty(),
    )
    try:
        with interrupts():  # whatever asks it to end, what is half done is undone first
            outcomes = import_all(planned, run, show=None if as_json else Report().print)
    except SignalledError as ended:
        return 128 + ended.number
    if as_json:
        output.print_json(
            {
                "file": str(found.path),
                "host": str(found.host),
                "config": str(place.path),
                "unknown_keys": list(found.unknown),
                "keys_given_twice": list(found.twice),
                "other_projects": list(found.other_projects),
                "servers": [each.to_json() for each in outcomes],
            }
        )
    else:
        _say_more(found, outcomes, place)
    return ExitStatus.FAILED if any(each.status.is_problem for each in outcomes) else ExitStatus.OK


def _say_place(place: ConfigurationPlace, held_by: Path) -> None:
    from fumehood_server.cli.output import say

    say(
        f"The configuration is {place.path}: a server that is granted {held_by} must not reach it, nor the sidecar's "
        "state. --config FILE names another place."
    )


def _check_wanted(found: HostConfiguration, wanted: Sequence[str]) -> None:
    from fumehood_server.model.nearest import nearest

    names = [each.name for each in found.servers]
    for name in wanted:
        if name not in names:
            raise CommandError(f"{found.path} names no server {name}", nearest(name, names), code="NOT_FOUND")


def _check_inputs(found: HostConfiguration, given: Mapping[str, str]) -> None:
    from fumehood_server.model.nearest import nearest

    for name in given:
        if name not in found.inputs:
            what = f"--input {name}: {found.path} has no input {name}"
            raise CommandError(what, nearest(name, found.inputs), code="NOT_FOUND")


def _pairs(inputs: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in inputs:
        name, equals, value = each.partition("=")
        if not equals:
            raise CommandError("--input takes ID=VALUE", "The ID is that of an element of `inputs`.")
        pairs[name] = value
    return pairs


def _say_more(found: HostConfiguration, outcomes: Sequence[Outcome], place: ConfigurationPlace) -> None:
    import json
    import shlex

    from fumehood_server.cli.configured import CONFIG_CHANGED
    from fumehood_server.cli.mcp_import.claude_code_scopes import named_projects
    from fumehood_server.cli.mcp_import.configuration_place import address_of, configuration_at
    from fumehood_server.cli.mcp_import.outcome import Status
    from fumehood_server.cli.output import note, say

    for key in found.unknown:
        note(f"{found.path}: the key {key} isn't known here")
    for key in found.twice:
        note(f"{found.path}: the key {key} is given twice, and the last one counts")
    if found.other_projects:
        named = named_projects(found.other_projects)
        note(f"{found.path}: servers of {named} are not taken: --workspace FOLDER takes those of one")
    if not outcomes:
        say("There are no servers in it.")
    if not any(each.status in {Status.IMPORTED, Status.UPDATED} for each in outcomes):
        return
    address = address_of(configuration_at(place.path))
    option = "" if place.is_here else f" --config {shlex.quote(str(place.path))}"
    reload = CONFIG_CHANGED if place.is_here else f"{CONFIG_CHANGED[:-2]} --address {address}`."
    say(f"Start the sidecar: fumehood serve{option}. {reload}")
    program, *arguments = _own_command()
    entry = json.dumps({"command": program, "args": [*arguments, "mcp", "--address", address]}, ensure_ascii=False)
    say(f"In the program's own configuration, one server takes their place:\n  {entry}")


def _own_command() -> list[str]:
    """What starts `fumehood` from any folder, outside of the virtual environment as well."""
    import shutil

    script = shutil.which("fumehood", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-P", "-m", "fumehood_server"]
