"""What a pattern takes to build is counted before it is built: all of it that takes time, as often as it stands."""

from __future__ import annotations

import contextlib
import json
import random
import time

import jsonschema_rs
import pytest
from fumehood_server.model.condition_checks import condition_problem
from fumehood_server.model.pattern_cost import building_states, pattern_costs
from fumehood_server.model.policy import Condition
from fumehood_server.model.schema import MAX_PATTERN_STATES, CostlyPatternsError, check_schema, compile_schema
from fumehood_server.validation.budget import INLINE

from tests.loop_steps import TRIES
from tests.model.random_patterns import random_pattern

MANY = 800
SHARE_OVER = 0.01
US_A_STATE = 10
"""Ten times what an idle machine takes: others run beside this."""

COSTLY = {
    "properties without regard to case": r"(?i)[" + r"\pL" * 3000 + "]",
    "negated spaces": "[" + r"\S" * 60_000 + "]",
    "negated classes of Unicode": "[" + r"[^\pL]" * 2000 + "]",
    "intersections": "[" + r"[\pL&&\pM]" * 300 + "]",
    "empty groups": "()" * 60_000,
    "empty groups that catch nothing": "(?:)" * 30_000,
    "flags": "(?i)" * 30_000,
    "characters in a class": "[" + "a" * 60_000 + "]",
    "POSIX classes": "[" + "[:alpha:]" * 2500 + "]",
    "all of Unicode without regard to case": "(?i)" + r"[x\W]" * 10,
    "a large class of many": r"[\p{L}\p{M}\p{N}\p{S}\p{P}]{40}",
    "unknown properties": r"\p{Grapheme_Base}{41}",
    "spaces, each of which is put in place anew": r"\s" * 200,
    "digits likewise": r"\d" * 1000,
    "control characters likewise": r"\cA" * 2000,
    "control characters in a class": "[" + r"\cA" * 900 + "]",
    "a group after a bracket in a class": r"[[](a{900}){40}",
    "a group after brackets in a negated class": r"[^a[[](a{900}){40}",
    "a group after what begins a POSIX class": r"[[:](\pL{17}){5}",
    "a group after a bracket in a class that begins with its end": r"[]a[b]c](a{900}){40}",
    "a group after a class that begins with its end": r"[]\]](a{900}){40}",
    "literals to look for": "a?" * 3000,
    "thousands of literals to look for": "[a-j]{3}" * 500,
}

EMAIL = r"^([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
DATE_TIME = (
    r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-"
    r"(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))T(?:(?:[01]\d|2[0-3]):"
    r"[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$"
)
"""As zod writes them."""

ORDINARY = (
    r"^[a-z]{1,64}$",
    r"^\p{L}{1,20}$",
    r"^[\w.-]{1,255}$",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^[^\s@]{1,64}@[^\s@]{1,190}$",
    EMAIL,
    DATE_TIME,
    r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$",
    r"^(([0-9a-fA-F]{1,4}:){7,7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:)$",
    r"^\+?[1-9]\d{1,14}$",
    r"^#[0-9a-fA-F]{6}$",
    r"^\[[^]]{1,32}\]$",
    r"^[[\]\w(){}]{1,64}$",
    r"(?i)^[a-z àâéèêëïîôùûüç'-]{1,50}$",
)


@pytest.mark.parametrize("pattern", COSTLY.values(), ids=COSTLY)
def test_a_pattern_that_takes_long_to_build_is_refused_by_name(pattern: str) -> None:
    assert building_states(pattern) > MAX_PATTERN_STATES
    schema = json.dumps({"type": "object", "properties": {"a": {"pattern": pattern}}})
    with pytest.raises(CostlyPatternsError, match="states together"):
        check_schema(schema, arguments=True)


@pytest.mark.parametrize("pattern", ORDINARY)
def test_an_ordinary_pattern_is_built_on_the_event_loop(pattern: str) -> None:
    assert building_states(pattern) <= INLINE.pattern_states
    schema = json.dumps({"type": "object", "properties": {"a": {"pattern": pattern}}})
    check_schema(schema, arguments=True, max_states=INLINE.pattern_states)


@pytest.mark.parametrize(
    "pattern", [r"(?i)[" + r"\pL" * 330 + "]", "[" + r"\S" * 490 + "]", r"\s" * 120, "[a-j]{3}" * 60, "()" * 500]
)
def test_an_approvers_condition_may_not_take_long_to_build(pattern: str) -> None:
    assert "states" in condition_problem(Condition(pointer="/a", pattern=pattern))


@pytest.mark.parametrize(
    "pattern", [r"^/home/[a-z]+/(docs|src)/.*$", r"^\d{4}-\d{2}-\d{2}$", r"^[^\s@]+@example\.com$"]
)
def test_an_approvers_condition_may_have_an_ordinary_pattern(pattern: str) -> None:
    assert not condition_problem(Condition(pointer="/a", pattern=pattern))


def test_patterns_count_together_and_are_not_read_where_their_characters_are_too_many() -> None:
    schema = {"a": {"pattern": "a{10}"}, "b": {"patternProperties": {"b{20}": {}}}}
    both = building_states("a{10}") + building_states("b{20}")
    assert pattern_costs(schema, both) is not None
    assert pattern_costs(schema, both - 1) is None
    assert pattern_costs({"pattern": "a" * 1000}, 999) is None


def test_building_takes_as_long_as_was_counted() -> None:
    """By processor time, so that what runs beside this counts little. What is over is measured again."""
    seed = random.Random(11)  # noqa: S311 - a test's
    over = [(pattern, 0.0, building_states(pattern)) for pattern in (random_pattern(seed, 1_000) for _ in range(MANY))]
    for _ in range(TRIES):
        measured = [(pattern, _building_us(pattern), counted) for pattern, _, counted in over]
        over = [each for each in measured if each[1] > US_A_STATE * each[2]]
        if len(over) <= MANY * SHARE_OVER:
            break
    assert len(over) <= MANY * SHARE_OVER, [(pattern[:100], *rest) for pattern, *rest in over]


def _building_us(pattern: str) -> float:
    times = []
    for _ in range(3):
        start = time.thread_time()
        with contextlib.suppress(jsonschema_rs.ValidationError, ValueError):
            compile_schema({"pattern": pattern})
        times.append((time.thread_time() - start) * 1e6)
    return min(times)
