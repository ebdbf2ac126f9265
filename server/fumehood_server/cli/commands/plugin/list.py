"""`fumehood plugin list`: lists the sidecar's plugins."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option

STATE_STYLES = {"serving": "green", "unavailable": "yellow", "refused": "red"}


@click.command("list", short_help="List the sidecar's plugins.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def list_plugins(as_json: bool, address: str | None) -> None:
    """List every plugin that the configuration names, and say why those that don't serve don't.

    \b
    Examples:
      fumehood plugin list
      fumehood plugin list --json | jq -r '.plugins[] | select(.state != "serving") | .name'
    """
    from fumehood_server.cli import json_output, output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.commands.tools import print_reasons

    with SidecarClient(address) as client:
        listed = [json_output.plugin_json(each) for each in client.list_plugins()]
    if as_json:
        output.print_json({"plugins": listed})
        return
    console = output.console()
    if not listed:
        console.print("The configuration names no plugin. `fumehood plugin add FOLDER` adds one.")
        return
    table = output.table("PLUGIN", "VERSION", "KIND", "STATE", "UP TO", "TOOLS", "FOLDER", right=(5,))
    for each in listed:
        table.add_row(
            output.styled(each["name"], "bold"),
            output.styled(each["version"]),
            output.styled(each["kind"]),
            output.styled(each["state"], STATE_STYLES.get(each["state"], "")),
            output.styled(each["max_side_effects"], output.LEVEL_STYLES.get(each["max_side_effects"], "")),
            str(each["tool_count"]),
            output.styled(each["path"], "dim"),
        )
    output.show_rows(console, table)
    for each in listed:
        if each["reasons"]:
            console.print()
            console.print(output.styled(output.one_line(f"{each['name']} is {each['state']}:"), "yellow"))
            print_reasons(console, each["reasons"])
