"""What `fumehood call` says of the approval that a call waits for, or waited for until it was cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fumehood.v1 import tool_pb2
    from fumehood.v1 import tool_service_pb2 as pb

    from fumehood_server.cli.client import SidecarClient


def approval_of(result: tool_pb2.ToolResult) -> str:
    """The approval that a call waits for; empty where it names none."""
    from fumehood_server.cli.output import json_or_text

    details = json_or_text(result.error.details_json)
    return str(details.get("approval_id", "")) if isinstance(details, dict) else ""


def once_approved(approval_id: str, call_id: str) -> str:
    """How to run a call once its approval, which stays open, is given."""
    # The id is what the approval is for: another call of the same arguments would need another.
    todo = f"{approval_id} stays open. Once it is approved (`fumehood approvals approve {approval_id}`), run it:"
    return f"{todo} the same command with --call-id {call_id}"


def tell_cancelled(client: SidecarClient, request: pb.CallToolRequest, *, waited: str, named: Sequence[str]) -> None:
    """Say what became of a call that was cancelled.

    `waited`: the approval that it waited for, if any. `named`: its id, where its caller can know of it.
    """
    from fumehood_server.cli import output

    call_id, tool = request.call_id, request.tool
    if not waited or not _has_not_begun(client, call_id):
        call = " ".join(("the call", *named))
        output.note(f"cancelled: {call} of {tool} was told to stop; what it had done stays done")
        return
    output.note(f"cancelled: the call {call_id} of {tool} had not begun: it waited for an approval")
    if _is_open(client, waited):
        output.note(once_approved(waited, call_id))


def _has_not_begun(client: SidecarClient, call_id: str) -> bool:
    """Whether a call that was cancelled, and had waited for its approval, surely never came to run."""
    from fumehood_server.cli.client import CANCEL_TIMEOUT_S
    from fumehood_server.cli.failure import CommandError

    try:
        found = client.get_call(call_id, timeout_s=CANCEL_TIMEOUT_S, wait=True)
    except CommandError as error:
        return error.code == "CALL_NOT_FOUND"  # nothing is recorded of one that waited
    return found.HasField("result") and not found.result.attempts


def _is_open(client: SidecarClient, approval_id: str) -> bool:
    from fumehood.v1 import approval_service_pb2 as approval_pb

    from fumehood_server.cli.failure import CommandError

    try:
        (found,) = client.list_approvals(approval_id)
    except CommandError:
        return False
    return found.state in {approval_pb.APPROVAL_STATE_PENDING, approval_pb.APPROVAL_STATE_APPROVED}
