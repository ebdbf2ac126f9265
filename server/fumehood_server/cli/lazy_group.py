"""click group that imports a command when it is run, so that `fumehood --help` doesn't import gRPC."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module

import click


class OutputClosedError(Exception):
    """EPIPE: the reader of the command's output has closed it, as `head` does. Not an error of the command."""


class LazyGroup(click.Group):
    """A click group whose commands are given as import paths, with a line of help each."""

    def __init__(self, *, places: Mapping[str, tuple[str, str]], **attributes: object) -> None:
        """`places` maps a command's name to ("module:attribute", its short help), in the order of the help page."""
        super().__init__(**attributes)  # type: ignore[arg-type]  # handed on as click's decorators give them
        self._places = dict(places)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command.

        Raises:
            OutputClosedError: the reader of its output has closed it; click itself would exit with status 1.
        """
        try:
            result: object = super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosedError from error
        return result

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order of the help page."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import the command, or None when there is none of that name."""
        place = self._places.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place[0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(place[0])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which name is near.

        Raises:
            click.UsageError: there is none of that name.
        """
        name = click.utils.make_str(args[0])
        if name not in self._places and not name.startswith("-"):
            near = difflib.get_close_matches(name, self._places, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(self._places)}."
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._places.items()])
