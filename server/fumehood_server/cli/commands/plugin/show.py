"""`fumehood plugin show`: prints a plugin with its tools, workers and sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names

if TYPE_CHECKING:
    from rich.console import Console

    from fumehood_server.cli.json_output import JsonObject


@click.command(short_help="Show one plugin with its tools, workers and sandboxes.")
@click.argument("name", shell_complete=plugin_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def show(name: str, as_json: bool, address: str | None) -> None:
    """Show one plugin: its tools, its processes, and for each level what they may touch and what holds them.

    \b
    Examples:
      fumehood plugin show files
      fumehood plugin show files --json | jq '.plugin.sandboxes[].writable_paths'
    """
    from fumehood_server.cli import json_output, output
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        shape = json_output.plugin_json(client.get_plugin(name), full=True)
    if as_json:
        output.print_json({"plugin": shape})
        return
    print_plugin(output.console(), shape)


def print_plugin(console: Console, plugin: JsonObject, *, sandboxes: bool = True) -> None:
    """Print one plugin for a person. Without `sandboxes`, what it is and what can be called."""
    from fumehood_server.cli import output
    from fumehood_server.cli.commands.plugin.list import STATE_STYLES
    from fumehood_server.cli.commands.tools import print_reasons

    state = plugin["state"]
    console.print(
        output.styled(output.one_line(f"{plugin['name']} {plugin['version']}"), "bold"),
        output.styled(output.one_line(f"{plugin['kind']},")),
        output.styled(output.one_line(state), STATE_STYLES.get(state, "")),
    )
    console.print(output.styled("  " + output.one_line(plugin["path"]), "dim"), soft_wrap=True)
    console.print(output.styled("  " + output.one_line(plugin["digest"]), "dim"), soft_wrap=True)
    if plugin["reasons"]:
        console.print()
        print_reasons(console, plugin["reasons"])
    if plugin["tools"]:
        console.print()
        table = output.table("TOOL", "LEVEL", "PERMISSION", "AVAILABLE")
        for tool in plugin["tools"]:
            level, permission = tool["side_effects"], tool["permission"]
            why = "; ".join(reason["message"] for reason in tool["availability"]["reasons"])
            table.add_row(
                output.styled(tool["name"], "bold"),
                output.styled(level, output.LEVEL_STYLES.get(level, "")),
                output.styled(permission, output.PERMISSION_STYLES.get(permission, "")),
                output.styled("yes" if tool["availability"]["available"] else f"no: {why}"),
            )
        output.show_rows(console, table)
    if not sandboxes:
        return
    if plugin["workers"]:
        console.print()
        table = output.table("WORKER", "STATE", "LEVEL", "CALLS NOW", "CALLS SERVED", "STARTED", "PROCESS")
        for worker in plugin["workers"]:
            table.add_row(
                output.styled(worker["id"]),
                output.styled(worker["state"]),
                output.styled(worker["side_effects"], output.LEVEL_STYLES.get(worker["side_effects"], "")),
                str(worker["calls_in_flight"]),
                f"{worker['calls_served']:,}",
                (worker["start_time"] or "").partition(".")[0].replace("T", " "),
                str(worker["process_id"] or ""),
            )
        output.show_rows(console, table)
    for sandbox in plugin["sandboxes"]:
        console.print()
        _sandbox(console, sandbox)


def _sandbox(console: Console, sandbox: JsonObject) -> None:
    from fumehood_server.cli import output

    level = sandbox["side_effects"]
    console.print("Sandbox of level", output.styled(output.one_line(level), output.LEVEL_STYLES.get(level, "")))
    facts = output.table("", "")
    for name, paths in (("writes", sandbox["writable_paths"]), ("reads", sandbox["readable_paths"])):
        for index, path in enumerate(paths or ["nothing"]):
            facts.add_row("" if index else f"  {name}", output.styled(path))
    facts.add_row("  reaches", output.styled(", ".join(sandbox["hosts"]) or "nobody"))
    if sandbox["private_addresses"]:
        facts.add_row("  also private", output.styled(", ".join(sandbox["private_addresses"])))
    if sandbox["engines"]:
        facts.add_row("  asks models of", output.styled(", ".join(sandbox["engines"])))
    if sandbox["secrets"]:
        facts.add_row("  may ask for", output.styled(", ".join(sandbox["secrets"])))
    facts.add_row("  environment", output.styled(", ".join(sandbox["environment"]) or "empty"))
    facts.add_row(
        "  limits", ", ".join(f"{key} {value:,}" for key, value in sandbox["limits"].items() if value is not None)
    )
    receipt = sandbox["receipt"]
    for index, layer in enumerate(receipt["layers"] if receipt else ()):
        weaker = " (weaker)" if layer["weaker"] else ""
        facts.add_row("" if index else "  held by", output.styled(f"{layer['name']}{weaker}: {layer['detail']}"))
    if receipt is None:
        facts.add_row("  held by", output.styled("no process of this level has run yet", "dim"))
    output.show_rows(console, facts)
