"""What expected.toml says of outcomes other than "passed", held against what came, both ways."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("expected.toml")
PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Difference:
    """Tests that don't pass on some kernels, and why. `*` stands for anything in entries, runs and tests."""

    entries: tuple[str, ...]
    runs: tuple[str, ...]
    tests: tuple[str, ...]
    outcome: str
    """"skipped" or "failed"."""
    reason: str

    def concerns(self, entry: str, run: str, test: str) -> bool:
        """Whether it speaks of this test there."""
        pairs = ((self.entries, entry), (self.runs, run), (self.tests, test))
        return all(any(any_matches(pattern, (name,)) for pattern in patterns) for patterns, name in pairs)


def any_matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether one of the names is as a pattern of expected.toml says."""
    return any(_pattern(pattern).fullmatch(name) for name in names)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    # Not fnmatch: the ids of parametrised tests have brackets.
    return re.compile(".*".join(re.escape(part) for part in text.split("*")))


@functools.cache
def differences() -> tuple[Difference, ...]:
    """All that expected.toml lists."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["difference"]
    return tuple(
        Difference(
            tuple(table.get("entries", ["*"])), tuple(table.get("runs", ["*"])), tuple(table["tests"]),
            table["outcome"], table["reason"],
        )
        for table in tables
    )  # fmt: skip


def surprises(entry: str, run: str, outcomes: dict[str, tuple[str, str]]) -> list[str]:
    """One line for each test whose outcome isn't the expected one."""
    found = []
    for test, (outcome, reason) in sorted(outcomes.items()):
        expected = {each.outcome for each in differences() if each.concerns(entry, run, test)} or {PASSED}
        if outcome not in expected:
            found.append(f"{test}: {outcome}, not {' or '.join(sorted(expected))}" + (f": {reason}" if reason else ""))
    return found
