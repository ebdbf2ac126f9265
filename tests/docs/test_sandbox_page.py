"""The promises of docs/sandbox.md and the tests hold each other up: none without a test, no test without its promise.

A row of the page is `| S101 | promise | names |`. A name in backticks is a test (`test_…`), a family of attacks (a file
of tests/attacks/inside), or a file or folder of tests. A test says which promises it holds by
`pytest.mark.promise("S101")`, on itself or on its whole file; a file that a row names needs no marks.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list

from tests.attacks.arena import FAMILIES
from tests.attacks.inside.kit import RELAY

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (S\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
COVERED = ("attacks", "backend", "egress", "faults", "isolation", "resources", "secrets")
"""Areas whose every test holds a promise. Those that aren't there yet are passed over."""
BY_FAMILY = {"test_attack_is_denied_and_its_control_works", "test_attack_by_a_plugin_is_denied_and_its_control_works"}
"""Their cases are the families' attacks, which carry the promises."""
Marks = dict[str, set[str]]


def promised() -> Marks:
    """Promise to names, as the page has it."""
    return {number: set(re.findall(r"`([^`]+)`", names)) for number, _, names in rows()}


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall((ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8"))


def all_tests() -> Iterator[tuple[Path, str, set[str]]]:
    """Every test: its file, its name, the promises that it is marked with."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        everywhere = set()
        for node in module.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "pytestmark":
                everywhere |= marked(node.value)
        for node in module.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                own = {number for decorator in node.decorator_list for number in marked(decorator)}
                yield path.relative_to(ROOT), node.name, own | everywhere


def marked(expression: ast.expr) -> set[str]:
    """The arguments of every `pytest.mark.promise(…)` in it."""
    return {
        argument.value
        for node in ast.walk(expression)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


@functools.cache
def held() -> Marks:
    """Promise to the tests and families that are marked with it."""
    found = defaultdict(set)
    for _, name, numbers in all_tests():
        for number in numbers:
            found[number].add(name)
    for family in FAMILIES:
        for attack in import_module(f"tests.attacks.inside.{family}").ATTACKS:
            found[attack.promise].add(family)
    return dict(found)


def test_every_promise_has_one_number_in_its_group() -> None:
    numbers = [number for number, _, _ in rows()]
    assert len(numbers) > 50
    assert numbers == sorted(set(numbers))
    page = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    for group in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        heading = group.split()[0]
        assert all(number.startswith(heading) for number, _, _ in ROW.findall(group)), heading


@pytest.mark.parametrize("number", promised())
def test_every_promise_names_what_holds_it(number: str) -> None:
    """The page says of each promise what the marks say, and names no test or file that isn't there."""
    names = promised()[number]
    files = {name for name in names if "/" in name}
    assert names
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert sorted(names - files) == sorted(held().get(number, ()))


def test_every_mark_names_a_promise() -> None:
    assert sorted(held().keys() - promised().keys()) == []


def test_every_test_of_these_areas_holds_a_promise() -> None:
    """Mark it with the promise that it holds, or name its file in that promise's row of docs/sandbox.md."""
    files = {name for names in promised().values() for name in names if "/" in name}
    loose = [
        f"{path}::{name}"
        for path, name, numbers in all_tests()
        if path.parts[1] in COVERED and not numbers and name not in BY_FAMILY
        if str(path) not in files and f"{path.parent}/" not in files
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
    page = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    assert f"| {len(calls)}: {always} always, {len(calls) - always} by argument; x32 and ia32 |" in page
