"""`fumehood approvals standing list` and `revoke`: approvals that stand for later calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.lazy_group import LazyGroup

if TYPE_CHECKING:
    from fumehood.v1 import approval_service_pb2 as pb

_HERE = "fumehood_server.cli.commands.approvals.standing"


@click.group(
    cls=LazyGroup,
    places={
        "list": (f"{_HERE}:list_standing", "List those that let calls begin, or show one."),
        "revoke": (f"{_HERE}:revoke", "Take one back at once."),
    },
    short_help="List and revoke approvals that stand for later calls.",
)
def standing() -> None:
    """List and revoke approvals that stand for later calls.

    \b
      fumehood approvals approve approval-1f3c… --standing --for 2h
      fumehood approvals standing list
      fumehood approvals standing revoke standing-77ab… --reason "done for today"
    """


@click.command("list", short_help="List those that let calls begin, or show one.")
@click.argument("standing_id", metavar="[ID]", default="")
@click.option("--all", "include_closed", is_flag=True, help="Also those that are used up, expired or revoked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def list_standing(standing_id: str, include_closed: bool, as_json: bool, address: str | None) -> None:
    """List the standing approvals that let calls begin, the oldest first; or one by its id.

    One whose tool, grants or rules have changed since lets nothing begin, and is shown as void.

    \b
    Examples:
      fumehood approvals standing list --json
      fumehood approvals standing list --all
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.approval_json import asker_text, standing_json
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        found = client.list_standing(standing_id, include_closed=include_closed)
    found.sort(key=lambda each: each.granted_at.ToMicroseconds())
    if as_json:
        output.print_json({"standing_approvals": [standing_json(each) for each in found]})
        return
    if not found:
        output.note("No approval stands.")
        return
    table = output.table("STANDING APPROVAL", "STATE", "TOOL", "CALLER", "USED", "UNTIL", "FOR")
    for each in found:
        shape = standing_json(each)
        is_void = shape["state"] == "active" and not shape["applies"]
        table.add_row(
            output.styled(each.standing_id, "bold"),
            output.styled("void" if is_void else shape["state"].replace("_", " ")),
            output.styled(each.tool),
            output.styled(asker_text(shape["caller"])),
            output.styled(f"{each.used:,} of {each.calls:,}" if each.calls else f"{each.used:,}"),
            output.styled(each.expires_at.ToDatetime().strftime("%Y-%m-%d %H:%M:%SZ")),
            output.styled(output.one_line(_for(each))),
        )
    output.show_rows(output.console(), table)


@click.command(short_help="Take one back at once.")
@click.argument("standing_id", metavar="ID")
@click.option("--reason", required=True, metavar="TEXT", help="Why. It is recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def revoke(standing_id: str, reason: str, as_json: bool, address: str | None) -> None:
    """Take a standing approval back: no call begins with it from now on, and none that waits for a worker is run.

    \b
    Example:
      fumehood approvals standing revoke standing-77ab… --reason "done for today"
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.approval_json import standing_json
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        revoked = client.revoke_standing(standing_id, reason)
    if as_json:
        output.print_json(standing_json(revoked))
        return
    output.say(f"{revoked.standing_id} of {revoked.tool} is revoked. {output.plural(revoked.used, 'call')} used it.")


def _for(message: pb.StandingApproval) -> str:
    """What calls it is for, in words."""
    from fumehood_server.cli.standing_terms import condition_text

    session = f", in session {message.session_id}" if message.session_id else ""
    tests = " and ".join(map(condition_text, message.conditions))
    return (tests or f"the arguments of call {message.call_id}") + session
