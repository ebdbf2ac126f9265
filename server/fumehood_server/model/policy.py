"""Permission rules: what an operator says about calls by tool, caller and arguments, and what comes of it for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

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
    policy: str = field(default="", compare=False)
    """Version of the rules, where those in force were asked."""
    matched: tuple[str, ...] = field(default=(), compare=False)
    """All rules that speak of the call, where that was asked for."""


class ToolRules(Protocol):
    """Those of one tool, as they were when they were asked for. Any thread may use them."""

    @property
    def pointers(self) -> frozenset[str]:
        """Where they look in the arguments."""

    def decide(self, caller: str, arguments: Any, /) -> Verdict:  # noqa: ANN401 - what stands for arguments is validation's
        """What they say of a call. `arguments`: a text that fits the tool's schema, or what all `pointers` find there.

        A text is parsed: see `validation.budget.INLINE` for how much of it the event loop may parse.
        """


class Policy(Protocol):
    """The rules in force."""

    @property
    def version(self) -> str:
        """SHA-256 of their canonical form."""

    def rules_of(self, tool: RegisteredTool) -> ToolRules:
        """Those that may speak of a tool's calls."""


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

    def rules_of(self, tool: RegisteredTool) -> ToolRules:
        """See `Policy`."""
        return _Unruled(unruled(tool))


@dataclass(frozen=True, slots=True)
class _Unruled:
    verdict: Verdict
    pointers: frozenset[str] = frozenset()

    def decide(self, _caller: str, _arguments: object, /) -> Verdict:
        return self.verdict


NO_RULES = NoRules()

__all__ = ["NO_RULES", "Condition", "Policy", "Requirement", "Rule", "Scalar", "ToolRules", "Verdict", "unruled"]
