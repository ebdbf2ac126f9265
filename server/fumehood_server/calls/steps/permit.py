"""The step of a call that asks whether it may run at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Policy, Verdict
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Permission
from fumehood_server.validation.budget import INLINE
from fumehood_server.validation.documents import Accepted, Document, Kind, is_large
from fumehood_server.validation.documents import Verdict as Validated
from fumehood_server.validation.pointer_values import PointerValues, pointers_document, read_values

Validate = Callable[[Document], Awaitable[Validated]]
"""Has a document validated, in the validator process if it is large. Raises where there is no verdict."""


async def decide(policy: Policy, tool: RegisteredTool, caller: str, text: str, validate: Validate) -> Verdict:
    """What the rules in force say of a call with these arguments, which fit the tool's schema.

    Nothing is waited for where no rule looks at them, or they are small.
    """
    while True:
        version, rules = policy.version, policy.rules_of(tool)
        arguments = await arguments_for(rules.pointers, text, validate)
        if isinstance(arguments, str) or arguments.chars <= INLINE.chars:
            verdict = rules.decide(caller, arguments)
        else:
            verdict = await asyncio.to_thread(rules.decide, caller, arguments)
        if policy.version == version:
            return replace(verdict, policy=version)


async def arguments_for(pointers: frozenset[str], text: str, validate: Validate) -> str | PointerValues:
    """The arguments if they are small, and else what the pointers find there: the validator process has looked."""
    if not pointers or not is_large(Document(Kind.POINTERS, "", "", text), INLINE):
        return text
    document = pointers_document(pointers, text)
    found = await validate(document)
    if not isinstance(found, Accepted):
        raise TypeError("pointers can be followed in any arguments")
    return read_values(document, found.text)


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
