"""What `make test` leaves to `make test-slow`: each says why, and no promise is shown by such tests alone.

Nor by tests that `make check` skips, since nobody asked for them by a variable of the environment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.repository.test_layout import ROOT
from tools.held_by import all_tests, held_by


def _marks(path: Path) -> Iterator[ast.Attribute]:
    """Every `pytest.mark.slow`, with or without a reason."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.slow":
            yield node


def _reasons(path: Path) -> Iterator[str]:
    """The first argument of every `pytest.mark.slow(…)`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.slow":
            (reason,) = node.args
            assert isinstance(reason, ast.Constant), ast.unparse(node)
            yield str(reason.value)


def test_every_slow_test_says_why() -> None:
    files = sorted(each for each in (ROOT / "tests").rglob("*.py") if "node_modules" not in each.parts)
    found = {str(path.relative_to(ROOT)): (len([*_marks(path)]), [*_reasons(path)]) for path in files}
    assert [path for path, (marks, reasons) in found.items() if marks != len(reasons) or not all(reasons)] == []
    assert sum(marks for marks, _ in found.values()) > 0, "control: some are slow"


def test_no_promise_is_held_by_slow_tests_and_ones_to_be_asked_for_alone() -> None:
    in_time: set[str] = set()
    for each in all_tests():
        if not (each.is_slow or each.is_asked_for):
            in_time |= {*each.files, *each.own}
    by_attacks = {
        number for number, names in held_by().items() if any("/" not in n and "test_" not in n for n in names)
    }
    assert sorted({*held_by()} - in_time - by_attacks) == []
