"""`fumehood mcp prompts` and `fumehood mcp prompt`: prompts of hosted MCP servers."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names
from fumehood_server.cli.failure import ExitStatus


@click.command("prompts", short_help="List the prompts of hosted servers.")
@click.argument("plugin", default="", shell_complete=plugin_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def list_prompts(plugin: str, as_json: bool, address: str | None) -> int:
    """List the prompts of the hosted MCP server PLUGIN, or of all, with what they take.

    Each page is a call, at level read: it starts the server where none runs, and is in the journal.

    \b
    Examples:
      fumehood mcp prompts
      fumehood mcp prompts docs --json
    """
    from fumehood.v1 import mcp_service_pb2 as pb

    from fumehood_server.cli import mcp_reading, output
    from fumehood_server.cli.client import SidecarClient

    prompts = []
    failed: dict[str, pb.McpReading] = {}
    with SidecarClient(address) as client:
        for name in mcp_reading.servers(client, plugin, "prompts/list"):
            request = pb.ListPromptsRequest(plugin=name)
            for page in mcp_reading.listed(client, "ListPrompts", request, failed):
                prompts += [mcp_reading.prompt_json(name, each) for each in page.prompts]
    status = ExitStatus.OK
    for name, reading in failed.items():
        status = mcp_reading.explain(name, reading, as_json=as_json)
    if as_json:
        output.print_json({"prompts": prompts, "errors": mcp_reading.errors_json(failed)})
        return status
    table = output.table("PLUGIN", "PROMPT", "TAKES", "DESCRIPTION")
    for each in prompts:
        taken = (argument["name"] + ("" if argument["required"] else "?") for argument in each["arguments"])
        table.add_row(
            output.styled(each["plugin"]),
            output.styled(output.one_line(each["name"]), "bold"),
            output.styled(output.one_line(" ".join(taken))),
            output.styled(output.summary(each["description"] or each["title"])),
        )
    if prompts:
        output.show_rows(output.console(), table)
    else:
        output.note("There is no prompt.")
    return status


@click.command("prompt", short_help="Fill in a prompt of a hosted server.")
@click.argument("plugin", shell_complete=plugin_names)
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def get_prompt(plugin: str, name: str, pairs: tuple[str, ...], as_json: bool, address: str | None) -> int:
    """Fill in the prompt NAME of the hosted MCP server PLUGIN, at level read, and print its messages.

    \b
    Examples:
      fumehood mcp prompt docs summarise topic=sandboxes
      fumehood mcp prompt docs summarise topic=sandboxes --json
    """
    from fumehood.v1 import mcp_service_pb2 as pb

    from fumehood_server.cli import mcp_reading, output
    from fumehood_server.cli.client import SidecarClient

    arguments = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{pair}: arguments are KEY=VALUE.")
        arguments[key] = value
    with SidecarClient(address) as client:
        values = [pb.McpPromptValue(name=key, value=value) for key, value in arguments.items()]
        request = pb.GetPromptRequest(plugin=plugin, name=name, arguments=values)
        response = mcp_reading.read(client, "GetPrompt", request)
        if response.reading.error.code == mcp_reading.FAILED:
            mcp_reading.check_prompt_arguments(client, plugin, name, arguments)
    if as_json:
        messages = [mcp_reading.message_json(each) for each in response.messages]
        reading = mcp_reading.reading_json(response.reading)
        output.print_json({"description": response.description, "messages": messages, "reading": reading})
    if response.reading.HasField("error"):
        return mcp_reading.explain(f"{plugin} {name}", response.reading, as_json=as_json)
    if not as_json:
        for each in response.messages:
            output.say(output.Part(f"{each.role}:", bold=True))
            if each.content.WhichOneof("block") == "blob":
                blob = each.content.blob
                output.note(f"({blob.media_type or 'application/octet-stream'}, {len(blob.data):,} bytes)")
            else:
                output.write_content(each.content.text)
    return ExitStatus.OK
