"""`[[policy.rule]]`: permission rules, each checked for what could not be honoured when a call comes."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood_server.config.policy_tables import ConditionTable, RuleTable
from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.model.condition_checks import pattern_problem
from fumehood_server.model.policy import Condition, Rule
from fumehood_server.model.tool import Permission

_RULE = "[[policy.rule]]"


def read_rules(tables: Sequence[RuleTable], source: TomlSource) -> tuple[Rule, ...]:
    """The rules.

    Raises:
        ConfigError: one can't be honoured as it stands.
    """
    names: set[str] = set()
    for place, table in enumerate(tables):
        key: Key = ("policy", "rule", place)
        if table.name in names:
            raise source.problem((*key, "name"), f'two rules have the name "{table.name}"', "an answer names the rule")
        names.add(table.name)
        _check(table, key, source)
    return tuple(_rule(table) for table in tables)


def _check(table: RuleTable, key: Key, source: TomlSource) -> None:
    approves = table.permission is Permission.REQUIRE_APPROVAL
    if not approves and (table.approvers or table.approvals > 1 or table.self_approval or table.standing):
        problem = (
            f'`approvers`, `approvals`, `self_approval` and `standing` in {_RULE} "{table.name}" ask for an approval'
        )
        raise source.problem((*key, "permission"), problem, 'write permission = "require_approval"')
    if table.approvals > 1 and len({*table.approvers}) < table.approvals:
        problem = f'{_RULE} "{table.name}" asks for {table.approvals} approvals, and names fewer `approvers`'
        raise source.problem((*key, "approvals"), problem, "name at least as many: they are told apart by their names")
    if table.standing and table.approvals > 1:
        problem = (
            f'`standing` in {_RULE} "{table.name}" is for one approver, and it asks for {table.approvals} approvals'
        )
        raise source.problem((*key, "standing"), problem, "leave it out: each call takes all of them then")
    for place, condition in enumerate(table.when):
        _check_condition(condition, (*key, "when", place), source)


def _check_condition(table: ConditionTable, key: Key, source: TomlSource) -> None:
    if table.pointer and not table.pointer.startswith("/"):
        hint = f'write "/{table.pointer}"'
        raise source.problem((*key, "pointer"), f'"{table.pointer}" is no JSON pointer (RFC 6901)', hint)
    if (table.min is not None and table.max is not None) and table.min > table.max:
        raise source.problem((*key, "min"), "`min` is more than `max`: no value is in that range")
    if table.equals is not None and table.one_of is not None:
        raise source.problem((*key, "equals"), "`equals` and `one_of` say the same thing twice", "write one of them")
    if table.pattern is None:
        return
    problem, hint = pattern_problem(table.pattern)
    if problem:
        raise source.problem((*key, "pattern"), problem, hint)


def _rule(table: RuleTable) -> Rule:
    return Rule(
        name=table.name,
        permission=table.permission,
        tools=tuple(table.tools),
        plugins=tuple(table.plugins),
        side_effects=tuple(each.value for each in table.side_effects),
        callers=tuple(table.callers),
        when=tuple(_condition(each) for each in table.when),
        approvers=tuple(table.approvers),
        approvals=table.approvals,
        self_approval=table.self_approval,
        standing=table.standing,
    )


def _condition(table: ConditionTable) -> Condition:
    equals = table.one_of if table.one_of is not None else [] if table.equals is None else [table.equals]
    return Condition(
        pointer=table.pointer, equals=tuple(equals), pattern=table.pattern or "", min=table.min, max=table.max
    )
