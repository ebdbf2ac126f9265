"""`fumehood hooks`: the group of commands about hooks and middleware."""

from __future__ import annotations

import click

from fumehood_server.cli.lazy_group import LazyGroup

_HERE = "fumehood_server.cli.commands.hooks"


@click.group(
    cls=LazyGroup,
    places={"list": (f"{_HERE}.list:list_hooks", "List hooks and middleware, and who serves them.")},
    short_help="Who is asked before and after calls.",
)
def hooks() -> None:
    """Show who is asked before and after calls, as fumehood.toml names them.

    \b
      fumehood hooks list
    """
