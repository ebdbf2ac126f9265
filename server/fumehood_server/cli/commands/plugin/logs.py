"""`fumehood plugin logs`: prints and follows a plugin's log."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names
from fumehood_server.cli.log_lines import print_log_line

MAX_LINES = 1000


@click.command(short_help="Show what a plugin wrote.")
@click.argument("name", shell_complete=plugin_names)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(1, MAX_LINES), default=100, show_default=True, help="Begin with these."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@address_option
def logs(name: str, follow: bool, lines: int, as_json: bool, address: str | None) -> None:
    """Show what a plugin wrote to stderr and to its log, and what the sidecar says of it.

    \b
    Examples:
      fumehood plugin logs dice
      fumehood plugin logs dice -f
      fumehood plugin logs dice --json | jq -r 'select(.level == "error") | .message'
    """
    from fumehood_server.cli import json_output, output
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        try:
            for line in client.tail_logs(name, lines=lines, follow=follow):
                if as_json:
                    output.print_json(json_output.log_line_json(line), compact=True)
                else:
                    print_log_line(line)
        except KeyboardInterrupt:
            if not follow:
                raise
