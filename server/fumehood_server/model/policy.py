"""Permission rules: what an operator says about calls by tool, caller and arguments, and what comes of it for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.tool import Permission

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One test of the arguments. All that it says must hold."""

    pointer: str
    """JSON pointer (RFC 6901) with `*` for every element or member."""
    equals: tuple[Scalar, ...] = ()
    """One of these. Empty: any."""
    pattern: str = ""
    """A regular expression that is found in it. Empty: any."""
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One `[[policy.rule]]`. It speaks of a call that every non-empty field fits."""

    name: str
    permission: Permission
    tools: tuple[str, ...] = ()
    """Names as callers know them; one that ends in `*` is a beginning."""
    plugins: tuple[str, ...] = ()
    side_effects: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    """Names of callers; an empty one is a caller without a name."""
    when: tuple[Condition, ...] = ()
    approvers: tuple[str, ...] = ()
    """Who may approve, by name. Empty: whoever may approve the tool."""
    approvals: int = 1
    """How many of them must."""
    self_approval: bool = False
    """Whether the asking caller may be one of them."""
    standing: bool = False
    """Whether an approver may have it stand for later calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a rule asks of an approval."""

    rule: str
    approvers: tuple[str, ...] = ()
    approvals: int = 1
    self_approval: bool = False
    standing: bool = False
    """Whether an approval that was given before may stand for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules say of one call."""

    permission: Permission
    rules: tuple[str, ...]
    """Those that decided: rules by their names, else the tool's own setting or its level."""
    requirements: tuple[Requirement, ...] = ()
    """What an approval must satisfy, each of them."""
    matched: tuple[str, ...] = field(default=(), compare=False)
    """All rules that speak of the call, where that was asked for."""


class Policy(Protocol):
    """The rules in force."""

    @property
    def version(self) -> str:
        """SHA-256 of their canonical form."""

    def decide(self, tool: RegisteredTool, caller: str, arguments_json: str) -> Verdict:
        """What they say of a call. `arguments_json` fits the tool's schema."""


def unruled(tool: RegisteredTool) -> Verdict:
    """The verdict where no rule speaks of a call. A permission that isn't known here is a denial."""
    definition = tool.definition
    name = f"[plugin.tools.{definition.name}]" if tool.permission_set else f"level {definition.side_effects.value}"
    permission = tool.permission if tool.permission in _KNOWN else Permission.DENY
    asks = permission is Permission.REQUIRE_APPROVAL
    return Verdict(permission=permission, rules=(name,), requirements=(Requirement(rule=name),) if asks else ())


_KNOWN = frozenset(Permission)


class NoRules:
    """See `Policy`: each tool's own permission decides."""

    version = ""

    def decide(self, tool: RegisteredTool, caller: str, arguments_json: str) -> Verdict:  # noqa: ARG002 - as in the protocol
        """See `Policy`."""
        return unruled(tool)


NO_RULES = NoRules()

__all__ = ["NO_RULES", "Condition", "Policy", "Requirement", "Rule", "Scalar", "Verdict", "unruled"]
