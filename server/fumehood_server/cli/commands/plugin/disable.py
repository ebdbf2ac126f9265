"""`fumehood plugin disable`: takes a plugin out of service, until `plugin enable`."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names


@click.command(short_help="Take a plugin out of service, at once.")
@click.argument("name", shell_complete=plugin_names)
@click.option("--reason", default="", metavar="TEXT", help="Why. Callers are told, and the journal keeps it.")
@click.option("--cancel-calls", is_flag=True, help="End its calls that are under way. Without it they finish.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def disable(name: str, reason: str, cancel_calls: bool, as_json: bool, address: str | None) -> None:
    """Take a plugin out of service, at once and over restarts, until `fumehood plugin enable`.

    Its tools stay listed, as unavailable; no process of it starts any more, and those that run end with their calls.
    NAME may be the plugin's folder.

    \b
    Examples:
      fumehood plugin disable mailer --reason "sends twice, see #214"
      fumehood plugin disable mailer --cancel-calls
    """
    from fumehood_server.cli import json_output, output
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        wanted = str(Path(name).absolute()) if "/" in name else name
        answer = client.disable_plugin(wanted, reason, cancel_calls=cancel_calls)
    shape = json_output.plugin_json(answer.plugin, full=True)
    if as_json:
        output.print_json({"plugin": shape, "cancelled_calls": answer.cancelled_calls})
        return
    cancelled = f", {output.plural(answer.cancelled_calls, 'call')} cancelled" if cancel_calls else ""
    console = output.console()
    console.print(output.styled(f"{shape['name']} is disabled{cancelled}."))
    console.print(output.styled(f"`fumehood plugin enable {shape['name']}` puts it back into service.", "dim"))
