"""Every promise of docs/sandbox.md is held by a test, and no test holds one that isn't there.

A test says which promises it holds by `pytest.mark.promise("S101")`, on itself or on its whole file. The page's last
columns are written from these marks (`make gen`), which `make lint` compares.
"""

from __future__ import annotations

import re
from importlib import import_module

from fumehood_sandbox import Level
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list

from tests.attacks.arena import FAMILIES
from tests.attacks.inside.kit import RELAY
from tools.held_by import PAGE, ROOT, all_tests, held_by, promises, written

COVERED = (
    *("attacks", "egress", "faults", "isolation", "landlock_only", "resources"),
    *("secrets", "tool_requests"),
)
"""Folders whose every test holds a promise."""
BY_FAMILY = {
    "test_attacks_are_denied_and_their_controls_work",
    "test_attacks_by_a_plugin_are_denied_and_their_controls_work",
}
"""Their cases are the families' attacks, which name the promises."""


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_promise_has_one_number_in_its_group() -> None:
    numbers = promises(page())
    assert len(numbers) > 50
    assert numbers == sorted(set(numbers))
    for group in re.split(r"^### ", page(), flags=re.MULTILINE)[1:]:
        heading = group.split()[0]
        assert all(number.startswith(heading) for number in promises(group)), heading


def test_every_promise_is_held_and_every_mark_names_a_promise() -> None:
    assert list(held_by()) == promises(page())


def test_page_names_the_tests_that_are_marked() -> None:
    assert written(page()) == page()


def test_every_test_of_these_areas_holds_a_promise() -> None:
    """Mark it with the promise that it holds, or its whole file."""
    assert [folder for folder in COVERED if not (ROOT / "tests" / folder).is_dir()] == []
    loose = [
        f"{test.path}::{test.name}"
        for test in all_tests()
        if test.path.parts[1] in COVERED and not test.own | test.files and test.name not in BY_FAMILY
    ]
    assert "\n".join(loose) == ""


def test_every_family_of_attacks_runs_at_each_level() -> None:
    """A family that nobody runs would hold nothing. One is for a relay alone."""
    for family in FAMILIES:
        attacks = import_module(f"tests.attacks.inside.{family}").ATTACKS
        assert attacks
        wanted = {RELAY} if family == RELAY else {*map(str, Level), RELAY}
        assert {level for attack in attacks for level in attack.levels} >= wanted


def test_numbers_of_denied_calls_are_todays() -> None:
    calls: dict[str, bool] = {}
    for rule in deny_list():
        if ARCHITECTURES["x86_64"].number(rule.syscall) is not None:
            calls[rule.syscall] = calls.get(rule.syscall, False) or not rule.conditions
    always = sum(calls.values())
    assert f"| {len(calls)}: {always} always, {len(calls) - always} by argument; x32 and ia32 |" in page()
