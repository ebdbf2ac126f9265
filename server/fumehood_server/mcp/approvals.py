"""Approvals of calls by whoever sits at the MCP client, where the sidecar's rules let a caller approve its own calls.

What is asked, and how an answer becomes a decision of the sidecar's ApprovalService. The sidecar judges it: what is
worked out here only spares people a question whose answer would not count.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
from fumehood.v1 import approval_service_pb2 as pb
from fumehood.v1 import tool_pb2
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ClientCapabilities, ElicitResult

from fumehood_server.telemetry import get_logger

MAX_SHOWN_CHARS = 8192
"""Arguments beyond this are not put into a question: nobody approves what they were not shown."""

ASK_TIMEOUT_S = 900.0
"""For an answer on a connection that waits for it. What is unanswered then stays open, and may be decided elsewhere."""

_LEVEL_PREFIX = "SIDE_EFFECTS_"

QUESTION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Let this one call run."},
    },
    "required": ["approve"],
}
"""The form (a restricted JSON Schema) that is to be filled in."""


def can_be_asked(capabilities: ClientCapabilities | None) -> bool:
    """Whether the client has forms for elicitation. One that names no mode has those."""
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def may_decide(approval: pb.Approval) -> bool:
    """Whether the asking caller's own approval would do, as far as the approval tells."""
    asker = approval.caller
    if approval.state != pb.APPROVAL_STATE_PENDING or asker.authenticated_by == "none":
        return False
    is_operator = not asker.name and asker.authenticated_by == "unix_socket"
    return len(approval.arguments_json) <= MAX_SHOWN_CHARS and all(
        each.approvals <= 1
        and (not each.approvers or asker.name in each.approvers)
        and (each.self_approval or is_operator)
        for each in approval.requirements
    )


def question(approval: pb.Approval) -> str:
    """What is to be approved, for a person."""
    level = tool_pb2.SideEffects.Name(approval.side_effects).removeprefix(_LEVEL_PREFIX).lower()
    shown = json.dumps(json.loads(approval.arguments_json or "{}"), indent=2, ensure_ascii=False)
    return (
        f'The tool "{approval.tool}" of the plugin "{approval.plugin}" needs an approval: its level is {level}.\n'
        f"It would run with these arguments:\n{shown}"
    )


async def ask(context: ServerRequestContext[Any, Any], approval: pb.Approval) -> pb.DecideApprovalRequest | None:
    """What the client decides, on a connection that waits for it. None: it can't be asked, or says nothing."""
    if not context.session.can_send_request:
        return None
    try:
        # Not asyncio's own: it cancels a task in another way than the scopes around it, which would not know it.
        with anyio.fail_after(ASK_TIMEOUT_S):
            answer = await context.session.elicit_form(question(approval), QUESTION, context.request_id)
    except (TimeoutError, MCPError):
        return None
    except Exception as error:  # noqa: BLE001 - whatever a client makes of an answer: nothing is decided by it
        get_logger().warning("mcp_answer_not_understood", approval_id=approval.approval_id, kind=type(error).__name__)
        return None
    return decision(approval.approval_id, approval.digest, answer)


def decision(approval_id: str, digest: str, answer: ElicitResult) -> pb.DecideApprovalRequest | None:
    """The decision that an answer stands for. None: the question was put aside."""
    if answer.action == "cancel":
        return None
    approves = answer.action == "accept" and (answer.content or {}).get("approve") is True
    return pb.DecideApprovalRequest(
        approval_id=approval_id,
        choice=pb.APPROVAL_CHOICE_APPROVE if approves else pb.APPROVAL_CHOICE_DENY,
        digest=digest,
        reason=f"{'approved' if approves else 'denied'} in the MCP client",
    )
