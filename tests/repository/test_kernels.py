"""The matrix of kernels: what is named exists, and outcomes are held against expected.toml both ways."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repository.test_layout import ROOT
from tools.kernels import expected
from tools.kernels.expected import Difference, any_matches, differences, surprises
from tools.kernels.matrix import (
    BY_NAME,
    DENIALS,
    ENTRIES,
    EVERYTHING,
    FULL,
    LANDLOCK_ONLY,
    NONE,
    QUICK,
    SHORT,
)

LISTED = Difference(("6.1",), ("*",), ("tests/a.py::test_listed[*]",), "skipped", "there is none")


@pytest.fixture(autouse=True)
def one_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "differences", lambda: (LISTED,))


@pytest.mark.parametrize(
    ("entry", "test", "outcome", "expected_here"),
    [
        ("6.1", "tests/a.py::test_other", "passed", True),
        ("6.1", "tests/a.py::test_other", "failed", False),
        ("6.1", "tests/a.py::test_other", "skipped", False),
        ("6.1", "tests/a.py::test_listed[1]", "skipped", True),
        ("6.1", "tests/a.py::test_listed[1]", "failed", False),
        ("6.1", "tests/a.py::test_listed[1]", "passed", False),
        ("6.12", "tests/a.py::test_listed[1]", "passed", True),
    ],
)
def test_what_is_not_listed_must_pass_and_what_is_must_not(
    entry: str, test: str, outcome: str, *, expected_here: bool
) -> None:
    assert (surprises(entry, "root", {test: (outcome, "")}) == []) is expected_here


@pytest.mark.parametrize(
    ("tests", "first_run"),
    [(SHORT, QUICK), (FULL, EVERYTHING), (NONE, ()), (f"{DENIALS},tests/sandbox", (DENIALS, "tests/sandbox"))],
)
def test_an_entry_runs_as_much_as_it_is_asked_to(tests: str, first_run: tuple[str, ...]) -> None:
    entry = BY_NAME["6.1"].given(tests)
    assert entry.runs[0].tests == first_run
    assert entry.given(SHORT) == entry.given(FULL) == entry  # the guest and the machine outside both ask


def test_every_test_that_the_matrix_names_is_there() -> None:
    given = {word for entry in ENTRIES for run in entry.runs for word in (*run.tests, *run.full)}
    named = {word for word in given if word.startswith("tests/")}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    without_namespaces = (ROOT / "tests" / "landlock_only").glob("test_*.py")
    assert {str(path.relative_to(ROOT)) for path in without_namespaces} < {*LANDLOCK_ONLY}


def test_every_difference_has_a_reason_and_names_entries_and_runs_that_are_there() -> None:
    listed = differences.__wrapped__()
    assert all(each.reason and each.outcome in {"skipped", "failed"} for each in listed)
    named = {"entries": {*BY_NAME}, "runs": {run.name for entry in ENTRIES for run in entry.runs}}
    patterns = {"entries": {name for each in listed for name in each.entries}}
    patterns["runs"] = {name for each in listed for name in each.runs}
    assert [(kind, each) for kind in named for each in patterns[kind] if not any_matches(each, named[kind])] == []


def test_every_difference_is_about_tests_that_are_there() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider"]
    printed = subprocess.run(
        [*command, *EVERYTHING, *LANDLOCK_ONLY],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    collected = {line for line in printed.splitlines() if "::" in line}
    patterns = {pattern for each in differences.__wrapped__() for pattern in each.tests}
    assert len(patterns) > 10
    assert [pattern for pattern in sorted(patterns) if not any_matches(pattern, collected)] == []


@pytest.mark.parametrize(("options", "status", "told"), [((), 2, "kernels: "), (("--if-possible",), 0, "SKIPPED: ")])
def test_what_cannot_be_tried_is_an_error_unless_it_may_be_skipped(
    options: tuple[str, ...], status: int, told: str
) -> None:
    command = [sys.executable, "-m", "tools.kernels", "quick", *options]
    no_programs = {"PATH": "/nowhere"}
    done = subprocess.run(command, cwd=ROOT, env=no_programs, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert told in done.stderr
    assert "dpkg" in done.stderr
