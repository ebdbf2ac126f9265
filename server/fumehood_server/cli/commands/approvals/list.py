"""`fumehood approvals list`: approvals that wait for a decision, or can be used."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import approval_ids


@click.command("list", short_help="List approvals that wait, or show one.")
@click.argument("approval_id", metavar="[ID]", default="", shell_complete=approval_ids)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def list_approvals(approval_id: str, as_json: bool, address: str | None) -> None:
    """List the approvals that wait for a decision, or that were given and not used; or one by its id.

    One is void whose tool, grants or rules have changed since it was asked for. Its call asks for another one when it
    is sent again; one that still waits does so at once.

    \b
    Examples:
      fumehood approvals list --json
      fumehood approvals list approval-1f3c…     one, also when it is closed
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.approval_json import approval_json, asker_text
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        found = [approval_json(each) for each in client.list_approvals(approval_id)]
    if as_json:
        output.print_json({"approvals": found})
        return
    if not found:
        output.note("No call waits for an approval.")
        return
    table = output.table("APPROVAL", "STATE", "TOOL", "LEVEL", "WHO ASKS", "CALL", "ARGUMENTS")
    for each in found:
        table.add_row(
            output.styled(each["approval_id"], "bold"),
            output.styled("void" if each["void_reason"] else each["state"]),
            output.styled(each["tool"]),
            output.styled(each["side_effects"]),
            output.styled(asker_text(each["caller"])),
            output.styled(each["call_id"]),
            output.styled(output.one_line(each["arguments_json"])),
        )
    output.show_rows(output.console(), table)
    for each in found:
        if each["void_reason"]:
            output.note(output.one_line(f"{each['approval_id']} is void: {each['void_reason']}."))
