"""`fumehood plugin reload`: has the sidecar reload a plugin."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names


@click.command(short_help="Have the sidecar read a plugin's folder again.")
@click.argument("name", shell_complete=plugin_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def reload(name: str, as_json: bool, address: str | None) -> None:
    """Have the sidecar read a plugin's folder again and replace its processes. Calls under way finish first.

    NAME may be the plugin's folder: of two plugins with one name, the second has none that leads to it.

    A folder that isn't what fumehood.lock pins is not taken: look at it with `fumehood plugin add FOLDER` first.

    \b
    Example:
      fumehood plugin reload dice               after `fumehood plugin add plugins/dice`
    """
    from fumehood_server.cli import json_output, output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.commands.plugin.show import print_plugin

    with SidecarClient(address) as client:
        # No plugin's name has a slash in it.
        wanted = str(Path(name).absolute()) if "/" in name else name
        shape = json_output.plugin_json(client.reload_plugin(wanted), full=True)
    if as_json:
        output.print_json({"plugin": shape})
        return
    console = output.console()
    console.print(f"Read again: {output.plural(shape['tool_count'], 'tool')}.")
    console.print()
    print_plugin(console, shape, sandboxes=False)
