"""`fumehood approvals approve`, `deny` and `withdraw`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import approval_ids
from fumehood_server.cli.failure import CommandError

if TYPE_CHECKING:
    from fumehood.v1 import approval_service_pb2 as pb


@click.command(short_help="Let a call run.")
@click.argument("approval_id", metavar="ID", shell_complete=approval_ids)
@click.option("--reason", default="", metavar="TEXT", help="Why. It is recorded, and the caller is not told.")
@click.option("--arguments", "whole", metavar="JSON|@FILE|-", help="Arguments to run it with in place of its own.")
@click.option("--digest", default="", help="Of the approval as you looked at it. Without it, as it is now.")
@click.option("--standing", is_flag=True, help="Let later calls of this caller and tool run as well.")
@click.option(
    "--for", "lasts", metavar="AGE", help="For how long it stands, such as 90m or 2h.  [default: the longest]"
)
@click.option("--calls", type=click.IntRange(0), default=0, metavar="N", help="For how many calls beside this one.")
@click.option("--session", is_flag=True, help="For the session of this call alone.")
@click.option("--where", multiple=True, metavar="TEST", help="What arguments must fit. Without it: exactly these.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def approve(
    *,
    approval_id: str,
    reason: str,
    whole: str | None,
    digest: str,
    standing: bool,
    lasts: str | None,
    calls: int,
    session: bool,
    where: tuple[str, ...],
    as_json: bool,
    address: str | None,
) -> None:
    """Let one call run, once, with exactly the arguments that are shown.

    With --standing, later calls of the same caller and tool run too, where the rules let an approval stand. A TEST is a
    JSON pointer with =~ and a pattern, <= or >= and a number, or = and a value. All of them must hold.

    \b
    Examples:
      fumehood approvals approve approval-1f3c… --reason "as agreed"
      fumehood approvals approve approval-1f3c… --arguments '{"amount": 10}'
      fumehood approvals approve approval-1f3c… --standing --for 2h --calls 20 --where '/path=~^/srv/'
    """
    import orjson

    from fumehood_server.cli.arguments import read_whole
    from fumehood_server.cli.standing_terms import standing_terms

    if not standing and (lasts is not None or calls or session or where):
        todo = "Add --standing, or leave them out."
        raise CommandError("--for, --calls, --session and --where say how long an approval stands", todo)
    text = "" if whole is None else orjson.dumps(read_whole(whole, "--arguments")).decode()
    _decide(
        "approve",
        approval_id,
        reason=reason,
        digest=digest,
        arguments=text,
        standing=standing_terms(lasts=lasts, calls=calls, session=session, where=where) if standing else None,
        as_json=as_json,
        address=address,
    )


@click.command(short_help="Keep a call from running.")
@click.argument("approval_id", metavar="ID", shell_complete=approval_ids)
@click.option("--reason", required=True, metavar="TEXT", help="Why. The caller is told.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def deny(approval_id: str, reason: str, as_json: bool, address: str | None) -> None:
    """Keep one call from running. Its caller is told that it was denied, and why.

    \b
    Example:
      fumehood approvals deny approval-1f3c… --reason "wrong account"
    """
    _decide("deny", approval_id, reason=reason, as_json=as_json, address=address)


@click.command(short_help="Take an approval back.")
@click.argument("approval_id", metavar="ID", shell_complete=approval_ids)
@click.option("--reason", default="", metavar="TEXT", help="Why. The caller is told.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def withdraw(approval_id: str, reason: str, as_json: bool, address: str | None) -> None:
    """Take an approval back that waits, or that was given and not used.

    \b
    Example:
      fumehood approvals withdraw approval-1f3c…
    """
    _decide("withdraw", approval_id, reason=reason, as_json=as_json, address=address)


def _decide(
    choice: str,
    approval_id: str,
    *,
    reason: str,
    as_json: bool,
    address: str | None,
    digest: str = "",
    arguments: str = "",
    standing: pb.StandingTerms | None = None,
) -> None:
    from fumehood.v1 import approval_service_pb2 as pb

    from fumehood_server.cli import output
    from fumehood_server.cli.approval_json import approval_json
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        if not digest and choice != "withdraw":
            (found,) = client.list_approvals(approval_id)
            digest = found.digest
        request = pb.DecideApprovalRequest(
            approval_id=approval_id,
            choice=pb.ApprovalChoice.Value(f"APPROVAL_CHOICE_{choice.upper()}"),
            digest=digest,
            reason=reason,
            arguments_json=arguments,
            standing=standing,
        )
        decided = approval_json(client.decide_approval(request))
    if as_json:
        output.print_json(decided)
        return
    output.say(f"{decided['approval_id']} of {decided['tool']} is {decided['state']}.")
    if decided["void_reason"]:  # another sidecar of the journal may have all as it was
        output.note(output.one_line(f"Here it is void: {decided['void_reason']}."))
    if standing is not None:
        standing_id = decided["decisions"][-1]["standing_id"]
        output.note(f"{standing_id} stands: fumehood approvals standing revoke {standing_id} --reason …")
    if decided["state"] == "pending":
        output.note("It waits for more approvals.")
    elif decided["state"] == "approved":
        call_id = output.one_line(decided["call_id"])
        output.note(f"Its call runs now; if its caller has left, the same call with --call-id {call_id} does.")
