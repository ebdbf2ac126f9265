"""`fumehood approvals`: the group of commands about calls that wait to be approved."""

from __future__ import annotations

import click

from fumehood_server.cli.lazy_group import LazyGroup

_HERE = "fumehood_server.cli.commands.approvals"


@click.group(
    cls=LazyGroup,
    places={
        "list": (f"{_HERE}.list:list_approvals", "List approvals that wait, or show one."),
        "watch": (f"{_HERE}.watch:watch", "Decide on a live screen."),
        "approve": (f"{_HERE}.decide:approve", "Let a call run."),
        "deny": (f"{_HERE}.decide:deny", "Keep a call from running."),
        "withdraw": (f"{_HERE}.decide:withdraw", "Take an approval back."),
        "standing": (f"{_HERE}.standing:standing", "List and revoke approvals that stand for later calls."),
    },
    short_help="Approve and deny calls that wait for it.",
)
def approvals() -> None:
    """Approve and deny calls that wait for it. What is decided holds for one call of exactly what is shown.

    Where the rules let an approval stand, --standing makes it one for later calls as well.

    \b
      fumehood approvals watch                     a live screen
      fumehood approvals list
      fumehood approvals approve approval-1f3c… --reason "as agreed with Ada"
      fumehood approvals approve approval-1f3c… --standing --for 2h --calls 20
      fumehood approvals deny approval-1f3c… --reason "wrong account"
    """
