"""`fumehood tools`: lists tools, or shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import tool_names

if TYPE_CHECKING:
    from rich.console import Console

    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.json_output import JsonObject

FORMATS = ("openai", "openai-responses", "anthropic", "gemini", "mcp")
LEVEL_MEANINGS = {
    "none": "reads its own code, writes a private scratch folder, calls nobody",
    "read": "as none, and reads the paths that the operator granted",
    "write": "as read, and writes the paths that the operator granted",
    "external": "as write, and reaches the hosts that the operator granted",
}


@click.command(short_help="List tools, or show one with its parameters.")
@click.argument("name", required=False, shell_complete=tool_names)
@click.option("--all", "include_unavailable", is_flag=True, help="List also what could not run now, with the reasons.")
@click.option("--plugin", "plugin_name", default="", metavar="NAME", help="Only tools of this plugin.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="Print definitions as JSON, as a model's API takes them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def tools(
    name: str | None,
    include_unavailable: bool,
    plugin_name: str,
    format_name: str | None,
    as_json: bool,
    address: str | None,
) -> None:
    """List tools, or show one with its parameters.

    \b
    Examples:
      fumehood tools
      fumehood tools --all               also those that could not run, and what would mend it
      fumehood tools roll_dice           parameters, level, permission, and a call to copy
      fumehood tools --json | jq -r '.tools[].name'
      fumehood tools --format openai     the `tools` of a request to a model
    """
    from fumehood_server.cli import json_output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.output import console, print_json

    with SidecarClient(address) as client:
        if format_name is not None:
            if name is not None:
                client.get_tool(name)  # says so where there is none
            print_json(_formatted(client, format_name, name, include_unavailable, plugin_name))
            return
        if name is not None:
            try:
                shape = json_output.tool_json(client.get_tool(name))
            except CommandError as error:
                raise with_near_names(error, name, client) from error
            if as_json:
                print_json({"tool": shape})
            else:
                print_tool(console(), shape)
            return
        found = client.list_tools(include_unavailable=include_unavailable, plugin=plugin_name)
        listed = [json_output.tool_json(each) for each in found]
        if as_json:
            print_json({"tools": listed})
            return
        hidden = 0
        if not include_unavailable:
            hidden = len(client.list_tools(include_unavailable=True, plugin=plugin_name)) - len(listed)
    _list(console(), listed, hidden)


def _formatted(
    client: SidecarClient, format_name: str, name: str | None, include_unavailable: bool, plugin_name: str
) -> list[JsonObject]:
    """The definitions of all tools, or of the one that is named, available or not."""
    from fumehood.v1 import tool_service_pb2 as pb

    return client.list_tools_as(
        pb.ToolFormat.Value(f"TOOL_FORMAT_{format_name.upper().replace('-', '_')}"),
        include_unavailable=include_unavailable or name is not None,
        plugin=plugin_name,
        names=[] if name is None else [name],
    )


def with_near_names(error: CommandError, name: str, client: SidecarClient) -> CommandError:
    """The error, with similar names where the tool is unknown."""
    import difflib

    if error.code not in {"TOOL_NOT_FOUND", "NOT_FOUND"}:
        return error
    names = [each.definition.name for each in client.list_tools(include_unavailable=True)]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    error.todo = f"Did you mean {' or '.join(near)}?" if near else "`fumehood tools --all` lists what there is."
    error.details["near"] = near
    return error


def _list(console: Console, listed: list[JsonObject], hidden: int) -> None:
    from fumehood_server.cli import output

    table = output.table("TOOL", "LEVEL", "PERMISSION", "PLUGIN", "WHAT IT DOES", cuts=True)
    for tool in listed:
        available = tool["availability"]["available"]
        level, permission = tool["side_effects"], tool["permission"]
        table.add_row(
            output.styled(tool["name"], "bold" if available else "dim"),
            output.styled(level, output.LEVEL_STYLES.get(level, "")),
            output.styled(permission, output.PERMISSION_STYLES.get(permission, "")),
            output.styled(tool["plugin"]),
            output.styled(output.summary(tool["description"]), "" if available else "dim"),
        )
    if listed:
        output.show_rows(console, table)
    else:
        console.print("No tool can be called.")
    out_of_service = [tool for tool in listed if not tool["availability"]["available"]]
    for tool in out_of_service:
        console.print()
        console.print(output.styled(output.one_line(f"{tool['name']} could not run now:"), "yellow"))
        print_reasons(console, tool["availability"]["reasons"])
    if hidden:
        console.print(
            f"\n{output.plural(hidden, 'tool')} could not run now; `fumehood tools --all` says why.", style="dim"
        )


def print_reasons(console: Console, found: list[JsonObject]) -> None:
    """Print reasons for unavailability, each with its remedy."""
    from fumehood_server.cli import output

    for reason in found:
        console.print(output.styled(output.hanging(f"  {reason['message']}  [{reason['code']}]")), soft_wrap=True)
        if reason["remedy"]:
            console.print(output.styled(output.hanging(f"    {reason['remedy']}"), "cyan"), soft_wrap=True)


def print_tool(console: Console, tool: JsonObject) -> None:
    """Print one tool for a person."""
    from fumehood_server.cli import output
    from fumehood_server.cli.schema import example_call

    level, permission = tool["side_effects"], tool["permission"]
    console.print(
        output.styled(output.one_line(tool["name"]), "bold"),
        output.styled(output.one_line(f"of plugin {tool['plugin']} {tool['plugin_version']}{_declared(tool)}"), "dim"),
    )
    console.print()
    output.print_indented(console, tool["description"].strip())
    console.print()
    facts = output.table("", "")
    facts.add_row(
        "  level", output.styled(f"{level}: {LEVEL_MEANINGS.get(level, '')}", output.LEVEL_STYLES.get(level, ""))
    )
    facts.add_row("  permission", output.styled(permission, output.PERMISSION_STYLES.get(permission, "")))
    facts.add_row("  available", "yes" if tool["availability"]["available"] else output.styled("no", "red"))
    facts.add_row("  terms", _terms(tool))
    if tool["requires"]:
        facts.add_row("  requires", output.styled(", ".join(tool["requires"])))
    declared = [f"{key} {value:,}" for key, value in tool["limits"].items() if value is not None]
    if declared:
        facts.add_row("  limits", ", ".join(declared))
    output.show_rows(console, facts)
    if not tool["availability"]["available"]:
        console.print()
        print_reasons(console, tool["availability"]["reasons"])
    console.print()
    _parameters(console, tool["input_schema"], "PARAMETER", "  It takes no arguments.")
    if isinstance(tool["output_schema"], dict) and tool["output_schema"].get("properties"):
        console.print()
        _parameters(console, tool["output_schema"], "RETURNS", "")
    schema = tool["input_schema"] if isinstance(tool["input_schema"], dict) else {}
    console.print()
    console.print("Try:", style="dim")
    console.print(output.styled(f"  {output.one_line(example_call(tool['name'], schema))}"), soft_wrap=True)


def _terms(tool: JsonObject) -> str:
    from fumehood_server.cli.output import seconds

    terms = [f"at most {seconds(tool['timeout_s'])}" if tool["timeout_s"] is not None else "default time-out"]
    terms.append("idempotent" if tool["idempotent"] else "not idempotent")
    if tool["execution_mode"] == "sequential":
        terms.append("one call at a time")
    if tool["isolation"] == "call":
        terms.append("a process for each call")
    return ", ".join(terms)


def _parameters(console: Console, schema: Any, heading: str, nothing: str) -> None:  # noqa: ANN401 - any JSON
    from fumehood_server.cli import output
    from fumehood_server.cli.schema import fields

    found = fields(schema) if isinstance(schema, dict) else []
    if not found:
        if nothing:
            console.print(nothing)
        return
    wants_answer = heading == "PARAMETER"
    defaults = ["DEFAULT"] if wants_answer else []
    table = output.table("  " + heading, "TYPE", *defaults, "WHAT IT IS", prose=(1, -1))
    for each in found:
        default = "required" if each.required else each.default
        table.add_row(
            output.styled(f"  {each.name}", "bold"),
            output.styled(each.type_text),
            *([output.styled(default, "yellow" if each.required else "dim")] if wants_answer else []),
            output.styled(each.description),
        )
    output.show_rows(console, table)


def _declared(tool: JsonObject) -> str:
    """The name that its author gave it, where the operator's is another."""
    own = tool["declared_name"]
    return f", which calls it {own}" if own not in {"", tool["name"]} else ""
