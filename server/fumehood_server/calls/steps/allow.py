"""The step of a call that asks whether its caller may call the tool.

Before the tool is looked for, so that nobody learns which there are beside its own.
"""

from __future__ import annotations

from fumehood_server.model.call import CallError, CallRequest
from fumehood_server.model.caller import CallerRights
from fumehood_server.model.taxonomy import Code


def check_caller(rights: CallerRights, request: CallRequest) -> CallError | None:
    """None where the caller may call it, whether it exists or not. What no rule allows is denied."""
    if rights.may_call(request.identity, request.tool):
        return None
    name = request.tool[:64]
    return CallError(
        code=Code.TOOL_DENIED,
        message=f"You may not call {name}: no rule of the operator's allows it. Go on without it.",
        details={"reason": "caller_denied", "caller": request.identity.name},
    )
