"""`fumehood plugin enable`: puts a plugin back into service."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names


@click.command(short_help="Put a plugin back into service.")
@click.argument("name", shell_complete=plugin_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def enable(name: str, as_json: bool, address: str | None) -> None:
    """Put a plugin back into service that `fumehood plugin disable` took out of it.

    \b
    Example:
      fumehood plugin enable mailer
    """
    from fumehood_server.cli import json_output, output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.commands.plugin.show import print_plugin

    with SidecarClient(address) as client:
        wanted = str(Path(name).absolute()) if "/" in name else name
        shape = json_output.plugin_json(client.enable_plugin(wanted), full=True)
    if as_json:
        output.print_json({"plugin": shape})
        return
    console = output.console()
    console.print(output.styled(f"{shape['name']} is enabled."))
    console.print()
    print_plugin(console, shape, sandboxes=False)
