"""The step of a call that asks whether it may run at all."""

from __future__ import annotations

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Permission


def check_permission(tool: RegisteredTool) -> CallError | None:
    """None when the call may run, else why not. A permission that isn't known here is a denial."""
    if tool.permission is Permission.ALLOW:
        return None
    name = tool.name
    if tool.permission is Permission.REQUIRE_APPROVAL:
        message = (
            f"{name} may not run without approval, and this version serves none. Its operator can allow it: "
            f'set `permission = "allow"` under `[plugin.tools.{tool.definition.name}]` of plugin "{tool.plugin}" in '
            "fumehood.toml."
        )
        reason = "approval_required"
    else:
        message = f"The operator does not allow {name}. Go on without it."
        reason = "denied"
    return CallError(
        code=Code.TOOL_DENIED,
        message=message,
        details={
            "reason": reason,
            "permission": str(tool.permission),
            "side_effects": str(tool.definition.side_effects),
        },
    )
