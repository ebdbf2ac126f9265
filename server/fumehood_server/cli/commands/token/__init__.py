"""`fumehood token`: bearer tokens of callers."""

from __future__ import annotations

import click

from fumehood_server.cli.lazy_group import LazyGroup

_HERE = "fumehood_server.cli.commands.token"


@click.group(
    cls=LazyGroup,
    places={
        "add": (f"{_HERE}.add:add", "Make a token for a caller, and print it once."),
        "list": (f"{_HERE}.list:list_tokens", "List tokens, without what makes them secret."),
        "revoke": (f"{_HERE}.revoke:revoke", "Take a token back, or all of a caller's."),
    },
    short_help="Give callers tokens, list them, take them back.",
    epilog="They change the file of tokens. A sidecar that runs looks at it for each request: nothing is reloaded.",
)
def token() -> None:
    """Give callers tokens, list them, take them back.

    \b
    A caller is named in fumehood.toml, with what it may do:
      [[caller]]
      name = "agent"
      tools = ["files_*"]
    \b
      fumehood reload
      fumehood token add agent --expires 30d > agent.token
      FUMEHOOD_TOKEN=@agent.token fumehood tools
    """
