"""`fumehood mcp resources` and `fumehood mcp read`: resources of hosted MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import plugin_names
from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from fumehood_server.cli.json_output import JsonObject


@click.command("resources", short_help="List the resources of hosted servers.")
@click.argument("plugin", default="", shell_complete=plugin_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def list_resources(plugin: str, as_json: bool, address: str | None) -> int:
    """List the resources, and templates of resources, of the hosted MCP server PLUGIN, or of all.

    Each page is a call, at level read: it starts the server where none runs, and is in the journal.

    \b
    Examples:
      fumehood mcp resources
      fumehood mcp resources docs --json
    """
    from fumehood.v1 import mcp_service_pb2 as pb

    from fumehood_server.cli import mcp_reading, output
    from fumehood_server.cli.client import SidecarClient

    resources, templates = [], []
    failed: dict[str, pb.McpReading] = {}
    with SidecarClient(address) as client:
        for name in mcp_reading.servers(client, plugin, "resources/list"):
            request = pb.ListResourcesRequest(plugin=name)
            for page in mcp_reading.listed(client, "ListResources", request, failed):
                resources += [mcp_reading.resource_json(name, each) for each in page.resources]
            asked = pb.ListResourceTemplatesRequest(plugin=name)
            for found in mcp_reading.listed(client, "ListResourceTemplates", asked, failed):
                templates += [mcp_reading.template_json(name, each) for each in found.templates]
    status = ExitStatus.OK
    for name, reading in failed.items():
        status = mcp_reading.explain(name, reading, as_json=as_json)
    if as_json:
        output.print_json({"resources": resources, "templates": templates, "errors": mcp_reading.errors_json(failed)})
        return status
    _show([*resources, *templates])
    return status


def _show(listed: list[JsonObject]) -> None:
    from fumehood_server.cli import output

    if not listed:
        output.note("There is no resource.")
        return
    table = output.table("PLUGIN", "URI", "TYPE", "WHAT")
    for each in listed:
        table.add_row(
            output.styled(each["plugin"]),
            output.styled(output.one_line(each.get("uri") or each.get("uri_template") or ""), "bold"),
            output.styled(output.one_line(each["media_type"])),
            output.styled(output.summary(each["title"] or each["description"] or each["name"])),
        )
    output.show_rows(output.console(), table)


@click.command("read", short_help="Read a resource of a hosted server.")
@click.argument("plugin", shell_complete=plugin_names)
@click.argument("uri")
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write its one content there."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; bytes are base64.")
@address_option
def read_resource(plugin: str, uri: str, file: Path | None, as_json: bool, address: str | None) -> int:
    """Read the resource URI of the hosted MCP server PLUGIN, at level read.

    Text goes to stdout. Bytes go to a file, with -o.

    \b
    Examples:
      fumehood mcp read docs docs://index
      fumehood mcp read docs docs://logo.png -o logo.png
    """
    from fumehood.v1 import mcp_service_pb2 as pb

    from fumehood_server.cli import mcp_reading, output
    from fumehood_server.cli.client import SidecarClient

    if file is not None and as_json:
        raise click.UsageError("--json prints what -o would write: give one of them.")
    with SidecarClient(address) as client:
        response = mcp_reading.read(client, "ReadResource", pb.ReadResourceRequest(plugin=plugin, uri=uri))
    if as_json:
        found = [mcp_reading.contents_json(each) for each in response.contents]
        output.print_json({"contents": found, "reading": mcp_reading.reading_json(response.reading)})
    if response.reading.HasField("error"):
        return mcp_reading.explain(plugin, response.reading, as_json=as_json)
    if file is not None:
        if len(response.contents) != 1:
            problem = f"{uri} has {len(response.contents)} contents, and -o writes one"
            raise CommandError(problem, "--json prints them all.", status=ExitStatus.FAILED)
        (only,) = response.contents
        _write(file, only.blob if only.WhichOneof("contents") == "blob" else only.text.encode())
    elif not as_json:
        for each in response.contents:
            if each.WhichOneof("contents") == "blob":
                kind = each.media_type or "application/octet-stream"
                output.note(f"({kind}, {len(each.blob):,} bytes; -o FILE writes them)")
            else:
                output.write_content(each.text)
    return ExitStatus.OK


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", "Give another FILE.", code="NOT_WRITABLE") from error
