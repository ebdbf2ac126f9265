"""What the permission rules say of a call: by tool, level, caller and arguments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.config.load import load_config
from fumehood_server.errors import ConfigError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Condition, Rule
from fumehood_server.model.tool import Permission
from fumehood_server.policy import RuleSet

from tests.calls.fake import tool
from tests.plugins.support import configure

ALLOW, ASK, DENY = Permission.ALLOW, Permission.REQUIRE_APPROVAL, Permission.DENY


def unset(permission: Permission = ASK, level: Level = Level.WRITE, name: str = "pay") -> RegisteredTool:
    return replace(tool(name, permission=permission, level=level), permission_set=False)


def rule(name: str, permission: Permission, *when: Condition, **more: object) -> Rule:
    return Rule(name=name, permission=permission, when=when, **more)  # type: ignore[arg-type] # its own keywords


def said(rules: list[Rule], arguments: object, *, of: RegisteredTool | None = None, caller: str = "") -> Permission:
    return RuleSet(rules).decide(of or unset(), caller, json.dumps(arguments)).permission


AMOUNT = "/amount"


@pytest.mark.parametrize(
    ("condition", "holds", "fails"),
    [
        (Condition(pointer=AMOUNT, max=10), [{"amount": 10}, {"amount": -1.5}], [{"amount": 10.1}, {}, {"amount": ""}]),
        (Condition(pointer=AMOUNT, min=2, max=3), [{"amount": 2}], [{"amount": 1}, {"amount": 4}, {"amount": True}]),
        (Condition(pointer="/to/0", equals=("a", 1)), [{"to": ["a"]}, {"to": [1]}], [{"to": [True]}, {"to": []}, {}]),
        (Condition(pointer="/p", pattern="^/srv/"), [{"p": "/srv/x"}], [{"p": "/"}, {"p": 1}, {"p": "/srv/" * 9_000}]),
        (Condition(pointer="/a~1b/m~0n", equals=(1,)), [{"a/b": {"m~n": 1}}], [{"a/b": {"m~n": 2}}, {"a": {"b": 1}}]),
        (Condition(pointer="/l/*/n", max=5), [{"l": [{"n": 1}, {"n": 5}]}], [{"l": [{"n": 1}, {"n": 6}]}, {"l": []}]),
        (Condition(pointer="/l/*", max=5), [{"l": [1] * 1000}], [{"l": [1] * 1001}]),
        (Condition(pointer="/force"), [{"force": None}], [{}]),
        (Condition(pointer="/x", equals=("a",)), [{"x": "a"}], [{"x": "\ud800"}]),
    ],
)
def test_leave_is_given_only_to_what_is_seen_to_fit(
    condition: Condition, holds: list[object], fails: list[object]
) -> None:
    allowed = [rule("small", ALLOW, condition)]
    wrong = [each for each in holds if said(allowed, each) is not ALLOW]
    wrong += [each for each in fails if said(allowed, each) is not ASK]
    assert wrong == []


def test_what_can_not_be_told_is_restricted() -> None:
    denied = [rule("etc", DENY, Condition(pointer="/p/*", pattern="^/etc"))]
    restricted = [["/etc/x"], ["/a", "/etc"], [1], ["/" + "x" * 20_000], ["/a"] * 1001]
    assert [said(denied, {"p": each}) for each in restricted] == [DENY] * 5
    assert [said(denied, each) for each in ({"p": ["/a"]}, {"p": []}, {})] == [ASK] * 3


COMPOSED, APART = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize(
    ("pointer", "wanted", "text", "is_told"),
    [
        ("/x", (5,), '{"x": "5"}', None),
        ("/x", (5,), '{"x": true}', None),
        ("/x", (5,), '{"x": [5]}', None),
        ("/x", (5,), '{"x": {"value": 5}}', None),
        ("/x", (True,), '{"x": 1}', None),
        ("/x", (True,), '{"x": "true"}', None),
        ("/x", ("a",), '{"x": ["a"]}', None),
        ("/x", (COMPOSED,), json.dumps({"x": APART}), None),
        ("/x", (APART,), json.dumps({"x": COMPOSED}), None),
        ("/x", (COMPOSED,), json.dumps({"x": COMPOSED}), True),
        ("/x", (5,), '{"x": 5.0}', True),
        ("/x", (5.0,), '{"x": 5}', True),
        ("/x", (100,), '{"x": 1e2}', True),
        ("/x", (0,), '{"x": -0}', True),
        ("/x", (0,), '{"x": -0.0}', True),
        ("/x", ("a",), '{"x": "\\u0061"}', True),
        ("/x", (5, "5"), '{"x": "6"}', False),
        ("/x", (5,), '{"x": 6}', False),
        ("/x", (5,), '{"x": null}', False),
        ("/x", (5,), "{}", False),
        ("/a~1b/m~0n", (1,), '{"a/b": {"m~n": 1}}', True),
        ("/a~01b", (1,), '{"a~1b": 1}', True),
        ("/l/1", (1,), '{"l": [0, 1]}', True),
        ("/l/01", (1,), '{"l": [0, 1]}', None),
        ("/l/-", (1,), '{"l": [0, 1]}', None),
        ("/l/" + "9" * 5000, (1,), '{"l": [0, 1]}', False),
        ("/l/2", (1,), '{"l": [0, 1]}', False),
        ("/to/account", ("x",), '{"to": [{"account": "x"}]}', None),
        ("/to/account", ("x",), '{"to": "x"}', None),
        ("/to/account", ("x",), '{"to": null}', False),
        ("/to/account", ("x",), '{"to": {}}', False),
        ("/to/*", ("x",), '{"to": "x"}', None),
    ],
)
def test_what_is_written_otherwise_is_equal_or_can_not_be_told(
    pointer: str, wanted: tuple[str | int | float | bool, ...], text: str, *, is_told: bool | None
) -> None:
    condition = Condition(pointer=pointer, equals=wanted)
    answers = {
        each: RuleSet([rule("r", each, condition)]).decide(
            unset(ASK if each is not ASK else ALLOW, Level.WRITE if each is not ASK else Level.NONE), "", text
        )
        for each in (ALLOW, ASK, DENY)
    }
    holds = {each: answer.rules == ("r",) for each, answer in answers.items()}
    restricts = is_told is not False
    assert holds == {ALLOW: is_told is True, ASK: restricts, DENY: restricts}


def test_a_pointer_looks_at_so_many_elements_and_not_only_finds_so_many() -> None:
    rules = [rule("n", DENY, Condition(pointer="/p/*/n", equals=(1,)))]
    assert [said(rules, {"p": [{}] * count}) for count in (1000, 1001)] == [ASK, DENY], "what is not seen is denied"
    nested = {"p": [[{}] * 100] * 100}
    assert said([rule("m", DENY, Condition(pointer="/p/*/*/n", equals=(1,)))], nested) is DENY


def test_denial_wins_over_approval_and_that_over_leave() -> None:
    allow, ask, deny = rule("a", ALLOW), rule("b", ASK), rule("c", DENY)
    assert said([allow], {}) is ALLOW
    assert said([allow, ask], {}) is said([ask, allow], {}) is ASK
    assert said([allow, deny, ask], {}) is DENY
    verdict = RuleSet([allow, ask, deny]).decide(unset(), "", "{}", every=True)
    assert (verdict.rules, set(verdict.matched)) == (("c",), {"a", "b", "c"})


def test_the_operators_permission_of_a_tool_counts_as_a_rule_and_its_level_only_without_one() -> None:
    for permission in (ASK, DENY):
        assert said([rule("a", ALLOW)], {}, of=tool("pay", permission=permission)) is permission
    assert said([rule("a", ASK)], {}, of=tool("pay", permission=ALLOW)) is ASK
    assert said([rule("a", DENY)], {}, of=unset(ALLOW, Level.NONE)) is DENY
    assert said([rule("a", ALLOW, tools=("other",))], {}, of=unset(ALLOW, Level.NONE)) is ALLOW
    unknown = tool("pay", permission="maybe")  # type: ignore[arg-type] # what a later version may write
    assert said([], {}, of=unknown) is said([rule("a", ALLOW)], {}, of=unknown) is DENY


def test_a_rule_speaks_of_its_tools_plugins_levels_and_callers_alone() -> None:
    for more in ({"tools": ("pay",)}, {"tools": ("p*",)}, {"plugins": ("fake",)}, {"side_effects": ("write",)}):
        assert said([rule("a", ALLOW, **more)], {}) is ALLOW
    for more in ({"tools": ("pa",)}, {"tools": ("x*", "pays")}, {"plugins": ("f",)}, {"side_effects": ("read",)}):
        assert said([rule("a", ALLOW, **more)], {}) is ASK
    named = [rule("a", ALLOW, callers=("ada",))]
    assert [said(named, {}, caller=each) for each in ("ada", "bob", "")] == [ALLOW, ASK, ASK]


def test_every_rule_that_asks_is_asked_for() -> None:
    rules = [rule("one", ASK), rule("two", ASK, approvers=("ada", "bob"), approvals=2), rule("free", ALLOW)]
    verdict = RuleSet(rules).decide(unset(), "", "{}")
    assert [(each.rule, each.approvals) for each in verdict.requirements] == [("one", 1), ("two", 2)]


def test_the_version_is_that_of_what_the_rules_say_and_not_of_their_order() -> None:
    one, two = rule("a", ALLOW), rule("b", DENY, Condition(pointer="/x", min=1))
    assert RuleSet([one, two]).version == RuleSet([two, one]).version
    changed = rule("b", DENY, Condition(pointer="/x", min=2))
    assert len({RuleSet(each).version for each in ([], [one], [one, two], [one, changed])}) == 4


CONFIG = """\
[[policy.rule]]
name = "large"
permission = "require_approval"
tools = ["pay"]
approvers = ["ada", "bob"]
approvals = 2
when = [{ pointer = "/amount", min = 1000 }, { pointer = "/to", pattern = "^x", one_of = ["xa", "xb"] }]
"""


def test_rules_are_read_from_the_configuration(tmp_path: Path) -> None:
    (found,) = load_config(configure(tmp_path, CONFIG)).rules
    assert found == Rule(
        name="large",
        permission=ASK,
        tools=("pay",),
        approvers=("ada", "bob"),
        approvals=2,
        when=(Condition(pointer=AMOUNT, min=1000), Condition(pointer="/to", pattern="^x", equals=("xa", "xb"))),
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"/amount"', '"amount"', "no JSON pointer"),
        ('"^x"', '"(?=x)"', "linear time"),
        ('"^x"', '"(x{1,100}){1,100}"', "states"),
        ('"require_approval"', '"allow"', "ask for an approval"),
        ('"require_approval"', '"perhaps"', "unknown permission"),
        ('["ada", "bob"]', '["ada", "ada"]', "fewer `approvers`"),
        ("min = 1000", "min = 1000, max = 1", "no value"),
        ("one_of", 'equals = "xa", one_of', "the same thing twice"),
        ("when", "were", "unknown key"),
    ],
)
def test_a_rule_that_could_not_be_honoured_is_refused_by_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(configure(tmp_path, CONFIG.replace(old, new)))
    assert 1 <= caught.value.line <= 7


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two rules"):
        load_config(configure(tmp_path, CONFIG + CONFIG))


VALUES: list[object] = [
    0,
    1,
    2.5,
    10,
    -3,
    True,
    False,
    None,
    "",
    "a",
    "ab",
    "b1",
    "\u00e9",
    "e\u0301",
    [],
    ["a"],
    {"a": 1},
]
CONDITIONS = [
    {"equals": (1,)}, {"equals": (True,)}, {"equals": ("a", "b1", 10)}, {"equals": ("\u00e9",)},
    {"min": 1}, {"max": 2}, {"min": 0, "max": 1},
    {"equals": (False, 0)},
    {"pattern": "^a"}, {"pattern": "[0-9]$"}, {"pattern": "^a", "equals": ("ab",)}, {"pattern": "a", "min": 3}, {},
]  # fmt: skip


def test_many_rules_say_what_each_says_alone() -> None:
    """The index leaves out only what does not hold."""
    places = ("/x", "/y/0", "/z/*", "/x/a", "/y/b")
    rules = [
        Rule(name=f"{permission}-{number}-{place}", permission=permission, when=(Condition(pointer=place, **terms),))  # type: ignore[arg-type] # its own keywords
        for permission in (ALLOW, ASK, DENY)
        for place in places
        for number, terms in enumerate(CONDITIONS)
    ]
    together, alone = RuleSet(rules), [RuleSet([each]) for each in rules]
    cases = [{}, *({"x": x, "y": [y], "z": [y, x]} for x in VALUES for y in VALUES)]
    wrong = []
    for case in cases:
        text = json.dumps(case)
        apart = {name for each in alone for name in each.decide(unset(), "", text, every=True).matched}
        if set(together.decide(unset(), "", text, every=True).matched) != apart:
            wrong.append(case)
    assert wrong == []


def test_of_a_thousand_rules_few_are_tried() -> None:
    """The guard of the index's purpose: a count, where a time would be the machine's."""
    terms = ({"min": 1e6}, {"pattern": "^DE[0-9]{4} x%d$"}, {"equals": ("FR%d",)})
    rules = []
    for number in range(1_000):
        (key, value), *_ = terms[number % 3].items()
        filled = (
            value % number if isinstance(value, str) else (value[0] % number,) if isinstance(value, tuple) else value
        )
        pointer = AMOUNT if key == "min" else "/to"
        rules.append(rule(f"r{number}", DENY, Condition(pointer=pointer, **{key: filled}), tools=("pay",)))  # type: ignore[arg-type] # likewise
    made = RuleSet(rules)
    made.decide(unset(), "", "{}")
    (of_tool,) = made._tools.values()
    found = [*of_tool._index.found({"to": "DE12 3456", "amount": 5})]
    assert found == []
    assert [each.rule.name for each in of_tool._index.found({"to": "FR2", "amount": 5})] == ["r2"]
    assert said(rules, {"to": "DE1234 x400", "amount": 5}) is DENY
