"""The step of a call that asks whether it may run at all."""

from __future__ import annotations

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Verdict
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Permission


def check_permission(tool: RegisteredTool, verdict: Verdict, *, approvals: bool = True) -> CallError | None:
    """None when the call may run, once it is approved where the verdict asks for that; else why not.

    `approvals`: whether an approval could be kept.
    """
    if verdict.permission is Permission.ALLOW or (verdict.permission is Permission.REQUIRE_APPROVAL and approvals):
        return None
    name = tool.name
    if verdict.permission is Permission.REQUIRE_APPROVAL:
        message = (
            f"{name} may not run without an approval, and this sidecar keeps no journal to keep approvals in. Its "
            f'operator can give it one, or set `permission = "allow"` under `[plugin.tools.{tool.definition.name}]` of '
            f'plugin "{tool.plugin}" in fumehood.toml.'
        )
        reason = "approval_required"
    else:
        message = f"The operator does not allow {name}{_why(verdict)}. Go on without it."
        reason = "denied"
    return CallError(
        code=Code.TOOL_DENIED,
        message=message,
        details={
            "reason": reason,
            "permission": str(tool.permission),
            "side_effects": str(tool.definition.side_effects),
            "rules": list(verdict.rules),
        },
    )


def _why(verdict: Verdict) -> str:
    return f" with these arguments (rule {verdict.rules[0]})" if verdict.matched else ""
