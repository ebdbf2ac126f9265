"""The rules in force, compiled: for each tool those that speak of it, and their verdict of one call.

Denial wins over approval, and approval over leave. A tool's own `permission` counts as a rule; its level decides where
no rule speaks of the call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson

from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Requirement, Rule, Verdict, unruled
from fumehood_server.model.selection import selects
from fumehood_server.model.tool import Permission
from fumehood_server.policy.conditions import CompiledCondition
from fumehood_server.policy.index import PatternGroups, RuleIndex
from fumehood_server.validation.pointer_values import PointerValues, parse_arguments

_MAX_TOOLS = 10_000
"""Whose rules are kept at hand."""
_STRICTNESS = {Permission.ALLOW: 0, Permission.REQUIRE_APPROVAL: 1, Permission.DENY: 2}


class _CompiledRule:
    __slots__ = ("_callers", "_conditions", "conditions", "kind", "requirement", "restricts", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.restricts = rule.permission is not Permission.ALLOW
        self.conditions = rule.when
        self.kind = (rule.tools, rule.plugins, rule.side_effects)
        """Rules of one kind may speak of the same tools."""
        self.requirement = Requirement(
            rule=rule.name,
            approvers=rule.approvers,
            approvals=rule.approvals,
            self_approval=rule.self_approval,
            standing=rule.standing,
        )
        self._callers = frozenset(rule.callers)
        self._conditions = tuple(CompiledCondition(each) for each in rule.when)

    def speaks_of(self, caller: str, arguments: Any) -> bool:  # noqa: ANN401 - any JSON value
        if self._callers and caller not in self._callers:
            return False
        return all(each.holds(arguments, restricts=self.restricts) for each in self._conditions)


class _ToolRules:
    """See `fumehood_server.model.policy.ToolRules`. The rules that may speak of one tool, the strictest first."""

    __slots__ = ("_index", "_is_ruled", "_is_set", "_unruled", "pointers")

    def __init__(
        self, tool: RegisteredTool, rules: Sequence[_CompiledRule], groups: PatternGroups[_CompiledRule]
    ) -> None:
        ordered = sorted(rules, key=lambda each: -_STRICTNESS[each.rule.permission])
        self._index = RuleIndex(ordered, groups)
        self._is_ruled = bool(rules)
        self.pointers = frozenset(each.pointer for rule in rules for each in rule.conditions)
        self._is_set = tool.permission_set
        self._unruled = unruled(tool)

    def decide(self, caller: str, arguments: str | PointerValues, *, every: bool = False) -> Verdict:
        found = parse_arguments(arguments) if self.pointers and isinstance(arguments, str) else arguments
        return self._verdict(caller, found, every=every)

    def _verdict(self, caller: str, arguments: Any, *, every: bool) -> Verdict:  # noqa: ANN401 - any JSON value
        own, is_set = self._unruled, self._is_set
        if own.permission is Permission.DENY and not every and (is_set or not self._is_ruled):
            return own
        found: list[_CompiledRule] = []
        for each in self._index.found(arguments):
            if found and not every and each.rule.permission is not found[0].rule.permission:
                break
            if each.speaks_of(caller, arguments):
                found.append(each)
                if each.rule.permission is Permission.DENY and not every:
                    break
        if not found:
            return own
        permission = found[0].rule.permission
        if is_set and _STRICTNESS[own.permission] > _STRICTNESS[permission]:
            permission, deciding, names = own.permission, [], own.rules
        else:
            deciding = [each for each in found if each.rule.permission is permission]
            names = tuple(each.rule.name for each in deciding)
        requirements = tuple(each.requirement for each in deciding)
        return Verdict(
            permission=permission,
            rules=names,
            requirements=(requirements or own.requirements) if permission is Permission.REQUIRE_APPROVAL else (),
            matched=tuple(each.rule.name for each in found),
        )


class RuleSet:
    """See `fumehood_server.model.policy.Policy`. `take_up` puts others in force."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        """Each rule's patterns are ones that the linear engine takes, and no two rules have one name."""
        self.version = version_of(rules)
        compiled = [_CompiledRule(each) for each in rules]
        self._groups = PatternGroups(compiled, lambda each: each.kind)
        self._by_name: dict[str, list[_CompiledRule]] = {}
        """Of rules that name their tools in full: those of each tool."""
        self._others: list[_CompiledRule] = []
        for each in compiled:
            if each.rule.tools and not any(name.endswith("*") for name in each.rule.tools):
                for name in dict.fromkeys(each.rule.tools):
                    self._by_name.setdefault(name, []).append(each)
            else:
                self._others.append(each)
        self._tools: dict[tuple[object, ...], _ToolRules] = {}

    def take_up(self, other: RuleSet) -> None:
        """Have the rules of another set in force, from the next call on."""
        self.version, self._tools, self._groups = other.version, {}, other._groups
        self._by_name, self._others = other._by_name, other._others

    def decide(self, tool: RegisteredTool, caller: str, arguments_json: str, *, every: bool = False) -> Verdict:
        """See `Policy`. `every`: name all rules that speak of the call, and not those alone that decide."""
        return self.rules_of(tool).decide(caller, arguments_json, every=every)

    def rules_of(self, tool: RegisteredTool) -> _ToolRules:
        """See `Policy`."""
        key = (tool.name, tool.plugin, tool.definition.side_effects, tool.permission, tool.permission_set)
        rules = self._tools.get(key)
        if rules is None:
            if len(self._tools) > _MAX_TOOLS:
                self._tools.clear()
            some = (*self._by_name.get(tool.name, ()), *self._others)
            rules = _ToolRules(tool, [each for each in some if selects(each.rule, tool)], self._groups)
            self._tools[key] = rules
        return rules


def version_of(rules: Sequence[Rule]) -> str:
    """SHA-256 of the rules as JSON with sorted keys, by name: their order says nothing."""
    data = [asdict(each) for each in sorted(rules, key=lambda each: each.name)]
    for each in data:
        if not each["standing"]:
            del each["standing"]  # so that rules which don't say it keep the version that they had before there was it
    return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()
