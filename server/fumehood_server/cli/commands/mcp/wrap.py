"""`fumehood mcp wrap`: runs one MCP server in a sandbox, as a stdio server for one line of an mcp.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import CommandError

if TYPE_CHECKING:
    from fumehood_sandbox import Level

_LEVELS = ("none", "read", "write", "external")


def _tool_levels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Behind TOOL=, the levels."""
    tool, equals, start = incomplete.partition("=")
    return [f"{tool}={each}" for each in _LEVELS if equals and each.startswith(start)]


class _WrapCommand(click.Command):
    """A command whose argument is a command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it. An option of the command line's own needs a `--` somewhere before."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if "--" in given:
                raise
            todo = "An option of the server's: put -- before its command. One of this command: see its --help."
            raise CommandError(error.format_message(), todo) from error


@click.command(cls=_WrapCommand, short_help="Run one MCP server in a sandbox, as a stdio server.")
@click.option("--read", multiple=True, type=click.Path(path_type=Path, exists=True), metavar="PATH", help="Grant it.")
@click.option(
    "--write",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Grant writing, and reading.",
)
@click.option("--network", "hosts", multiple=True, metavar="NAME:PORT", help="Grant requests to a host; again.")
@click.option("--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Hand over a variable; again.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="Hand over a variable as a secret; again.")
@click.option("--allow", multiple=True, metavar="TOOL", help="No approval for it; * for any characters; again.")
@click.option(
    "--max-side-effects",
    "level_name",
    type=click.Choice(_LEVELS),
    default="external",
    show_default=True,
    help="Offer tools up to this level.",
)
@click.option(
    "--level",
    "tool_levels",
    multiple=True,
    metavar="TOOL=LEVEL",
    shell_complete=_tool_levels,
    help="A tool's level, whatever the server says of it; again.",
)
@click.option("--one-process", is_flag=True, help="One process for tools of every level: it keeps state between calls.")
@click.option("--update", is_flag=True, help="Install and pin it anew.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def wrap(
    read: tuple[Path, ...],
    write: tuple[Path, ...],
    hosts: tuple[str, ...],
    variables: tuple[str, ...],
    secrets: tuple[str, ...],
    allow: tuple[str, ...],
    level_name: str,
    tool_levels: tuple[str, ...],
    one_process: bool,
    update: bool,
    command: tuple[str, ...],
) -> int:
    """Run the MCP server that COMMAND starts in a sandbox, and serve its tools on stdin and stdout.

    It gets what the options grant and nothing else: no file, no network, no variable of yours. What npx or uvx would
    fetch is installed once, pinned, and started without network. A sidecar of its own records each call; all of it
    ends when stdin does.

    Tools that write or reach out need an approval for each call: a client with elicitation asks you; from another the
    call is refused, and --allow TOOL lets it run.

    \b
    One entry of an mcp.json:
      {"command": "fumehood",
       "args": ["mcp", "wrap", "--read", "/data", "--",
                "npx", "-y", "@modelcontextprotocol/server-filesystem", "/data"]}
    \b
    Examples:
      fumehood mcp wrap --write /data --allow "write_*" -- npx -y @modelcontextprotocol/server-filesystem /data
      fumehood mcp wrap --network api.github.com:443 --secret GITHUB_TOKEN -- ./github-mcp-server stdio
      fumehood mcp wrap --network example.com:443 --level fetch=external -- uvx mcp-server-fetch
      fumehood mcp wrap -- uvx mcp-server-time
    """
    from fumehood_sandbox import Level

    from fumehood_server.cli.interrupts import SignalledError, interrupts
    from fumehood_server.cli.mcp_wrap.serving import grants_for, say_what_holds, serve_wrapped
    from fumehood_server.cli.mcp_wrap.wrapped_server import WrappedCommand, installed_server
    from fumehood_server.cli.output import note

    try:
        with interrupts():  # whatever asks it to end, its sidecar ends first
            levels = _levels(tool_levels)
            _check_hosts(hosts)
            wrapped = WrappedCommand(command=command, variables=_variables(variables), secrets=_secrets(secrets))
            with installed_server(wrapped, lambda line: note(f"fumehood: {line}"), update=update) as server:
                grants = grants_for(
                    server,
                    read=read,
                    write=write,
                    hosts=hosts,
                    allow=allow,
                    level=Level(level_name),
                    tool_levels=levels,
                    one_process=one_process,
                )
                say_what_holds(server, grants)
                number = serve_wrapped(server, grants)
    except SignalledError as ended:
        number = ended.number
    return 128 + number if number else 0


def _levels(texts: tuple[str, ...]) -> dict[str, Level]:
    from fumehood_sandbox import Level

    found = {}
    for text in texts:
        tool, _, level = text.partition("=")
        if not tool or level not in _LEVELS:
            raise CommandError(f"--level {text}: not TOOL=LEVEL", f"LEVEL is one of {', '.join(_LEVELS)}.")
        found[tool] = Level(level)
    return found


def _check_hosts(texts: tuple[str, ...]) -> None:
    from fumehood_server.cli.mcp_import.shown_text import shown
    from fumehood_server.egress import HostEntryError, parse_granted

    for text in texts:
        try:
            parse_granted(text)
        except HostEntryError as error:
            suggested = f"{text}:443" if re.fullmatch(r"[A-Za-z0-9.-]+", text) else "api.example.com:443"
            raise CommandError(f"--network {shown(text)}: not NAME:PORT", f"Such as --network {suggested}.") from error


def _variables(texts: tuple[str, ...]) -> dict[str, str]:
    import os

    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise CommandError(f"--env {name}: there is no environment variable of that name", "Give --env NAME=VALUE.")
        found[name] = value if equals else os.environ[name]
    return found


def _secrets(names: tuple[str, ...]) -> tuple[str, ...]:
    import os

    from fumehood_server.model.capability import valid_secret_name

    for text in names:
        name, equals, _ = text.partition("=")
        if equals:
            what = f"--secret {name}=…: it takes the name of a variable alone"
            raise CommandError(what, f"Set {name} where this command is started: in `env` of its entry in mcp.json.")
        if not valid_secret_name(name):
            raise CommandError(f'"{name}" can\'t be the name of a secret', "Give the name of a variable.")
        if name not in os.environ:
            todo = "Set it where this command is started: in `env` of its entry in mcp.json."
            raise CommandError(f"--secret {name}: there is no environment variable of that name", todo)
    return names
