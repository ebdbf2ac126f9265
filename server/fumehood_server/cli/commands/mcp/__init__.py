"""`fumehood mcp`: serves the sidecar's tools to an MCP client over stdio; the group of commands about MCP."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.lazy_group import LazyGroup

_HERE = "fumehood_server.cli.commands.mcp"


@click.group(
    cls=LazyGroup,
    places={
        "import": (f"{_HERE}.import_servers:import_servers", "Take over the MCP servers of another program."),
        "prompt": (f"{_HERE}.prompts:get_prompt", "Fill in a prompt of a hosted server."),
        "prompts": (f"{_HERE}.prompts:list_prompts", "List the prompts of hosted servers."),
        "read": (f"{_HERE}.resources:read_resource", "Read a resource of a hosted server."),
        "resources": (f"{_HERE}.resources:list_resources", "List the resources of hosted servers."),
        "wrap": (f"{_HERE}.wrap:wrap", "Run one MCP server in a sandbox, as a stdio server."),
    },
    invoke_without_command=True,
    short_help="MCP: take servers over, wrap one, serve the tools to a client.",
)
@address_option
@click.option("--token-file", metavar="FILE", help="File that holds the token to call with: --token @FILE.")
@click.option(
    "--tools",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Offer only tools whose name fits, with * for any characters; again.",
)
@click.option(
    "--max-level",
    type=click.Choice(["none", "read", "write", "external"]),
    help="Offer only tools of this side-effect level or a lower one.",
)
@click.pass_context
def mcp(
    ctx: click.Context,
    address: str | None,
    token_file: str | None,
    patterns: tuple[str, ...],
    max_level: str | None,
) -> int:
    """Serve the sidecar's tools to an MCP client over stdio, until it closes stdin.

    The client is a caller as any: it is listed what it may call, and rules, quotas, approvals and the journal hold.

    \b
    One entry of an mcp.json:
      {"mcpServers": {"fumehood": {"command": "fumehood", "args": ["mcp", "--address", "unix:/run/fumehood.sock"]}}}
    \b
    Examples:
      fumehood mcp --token-file agent.token
      fumehood mcp --tools "files_*" --max-level read
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from fumehood_server.cli.address import resolve_address
    from fumehood_server.cli.channel import channel_credentials
    from fumehood_server.cli.credentials import credentials
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.output import note, one_line
    from fumehood_server.mcp.errors import McpMissingError
    from fumehood_server.mcp.stdio import serve_stdio
    from fumehood_server.mcp.tool_choice import ToolChoice
    from fumehood_server.model.extras import install_command

    target = resolve_address(address)
    shown = credentials(token_file)
    try:
        number = serve_stdio(
            target,
            token=shown.token,
            credentials=channel_credentials(target, shown),
            choice=ToolChoice.of(patterns, max_level),
            remedy="start it with `fumehood serve`, or say by --address where it is",
            say=lambda text: note(one_line(f"fumehood: {text}")),
        )
    except McpMissingError as error:
        raise CommandError(
            str(error),
            f"Run {install_command('mcp')}.",
            code="EXTRA_MISSING",
            details={"module": error.module},
        ) from error
    return 128 + number if number else 0
