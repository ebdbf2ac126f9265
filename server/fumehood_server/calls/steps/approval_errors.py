"""The errors of calls that wait for an approval, or were not approved."""

from __future__ import annotations

from fumehood_server.model.approvals import Approval
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code


def approval_required(tool: str, approval: Approval) -> CallError:
    """The answer to a caller who does not wait."""
    return CallError(
        code=Code.TOOL_APPROVAL_REQUIRED,
        # How it comes again is said by who has its id: a model has none.
        message=f"{tool} needs an approval, and {approval.approval_id} waits to be decided. Nothing has run.",
        details={
            "approval_id": approval.approval_id,
            "rules": [each.rule for each in approval.requirements],
            "expires_at_us": approval.expires_us,
        },
    )


def not_approved(tool: str, approval_id: str, why: str, approval: Approval | None = None) -> CallError:
    """A call that was not approved. `why` is the approval's state, or the reason why it can't be used."""
    said = ""
    if approval is not None and approval.decisions and approval.decisions[-1].reason:
        said = f" Reason: {approval.decisions[-1].reason}"
    words = {
        "denied": f"The call of {tool} was denied.{said}",
        "withdrawn": f"The approval for {tool} was withdrawn.{said}",
        "expired": f"The approval for {tool} was not decided and used in time.",
        "used": f"The approval for {tool} is used up.",
        "revoked": f"The standing approval for {tool} was revoked before it ran.",
        "too_many": f"{tool} needs an approval, and as many are open as may be. Call again later.",
    }
    return CallError(
        code=Code.TOOL_DENIED,
        message=words.get(why, f"The approval for {tool} is void: what was approved has changed. Call again."),
        retryable=why == "too_many",
        details={"reason": f"approval_{why}", "approval_id": approval_id},
    )


def changed(tool: RegisteredTool) -> CallError:
    """The tool or the rules are not those any more that its call waited with."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{tool.name} changed while it waited for its approval, which is void. Call again.",
        retryable=True,
        details={"reason": "approval_changed"},
    )
