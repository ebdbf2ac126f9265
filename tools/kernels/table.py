"""Writes the table of docs/sandbox.md from the last results: of short runs, and of those with all tests below them."""

from __future__ import annotations

import re

from tools.kernels.expected import PASSED, surprises
from tools.kernels.matrix import ENTRIES, FULL, LANDLOCK_ONLY_ATTACKS, SHORT, Entry
from tools.kernels.places import ROOT, KernelsError
from tools.kernels.results import NO_BACKEND, EntryResult, RunResult, kept
from tools.kernels.root_image import series_of

PAGE = ROOT / "docs" / "sandbox.md"
HEAD = (
    "| command | set-up | kernel | Landlock ABI | as | doctor finds | weaker or missing | attacks' cases held "
    "| other tests passed | otherwise |\n|---|---|---|---|---|---|---|---|---|---|\n"
)
_TABLE = re.compile(re.escape(HEAD) + r"((?:\|.*\n)*)")
_ATTACKS = ("tests/attacks/", *LANDLOCK_ONLY_ATTACKS)


def write_tables() -> None:
    """Replace the rows in the page.

    Raises:
        KernelsError: the page has no such table.
    """
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(written(text), encoding="utf-8")


def written(text: str) -> str:
    """The page with the rows of all that has results here. Those of other boots stay as they are.

    Raises:
        KernelsError: the page has no such table.
    """
    if not (table := _TABLE.search(text)):
        raise KernelsError(f"{PAGE} has no table with the head {HEAD!r}")
    before = table[1].splitlines(keepends=True)
    rows = (row for entry in ENTRIES for tests in (SHORT, FULL) for row in _rows(entry, tests, before))
    return text[: table.start(1)] + "".join(rows) + text[table.end(1) :]


def _rows(entry: Entry, tests: str, before: list[str]) -> list[str]:
    command = f"`make test-kernels ONLY={entry.name}{' FULL=1' if tests == FULL else ''}`"
    result = kept(entry.name, tests)
    if result is not None and result.runs:
        return _told(command, entry, result)
    if known := [row for row in before if row.startswith(f"| {command} |")]:
        return known
    return [_cells(command, entry.about, entry.kernel, *("not run",) * 7)] if tests == SHORT else []


def _told(command: str, entry: Entry, result: EntryResult) -> list[str]:
    kernel = f"{series_of(result.kernel['release'])}, {result.kernel['machine']}"
    boot = (command, entry.about, kernel, result.kernel["landlock_abi"] or "none")
    return [_cells(*boot, *_of_run(entry, run)) for run in result.runs]


def _of_run(entry: Entry, run: RunResult) -> tuple[object, ...]:
    attacks = {test: outcome for test, (outcome, _) in run.outcomes.items() if test.startswith(_ATTACKS)}
    others = {test: outcome for test, (outcome, _) in run.outcomes.items() if test not in attacks}
    passed = [sum(outcome == PASSED for outcome in part.values()) for part in (attacks, others)]
    surprising = len(surprises(entry.name, run.name, run.outcomes))
    otherwise = [f"{count} {outcome}" for outcome, count in sorted(run.counts.items()) if outcome != PASSED]
    otherwise += [f"{surprising} of them not listed"] if surprising else []
    otherwise += ["cut short"] if run.outcomes and run.ended not in {0, 1} else []
    lacking = ", ".join(run.weaker) if run.backend != NO_BACKEND else "; ".join(run.missing)
    return (
        run.name, run.backend, lacking or "nothing",
        passed[0] or "not run", passed[1] or "not run", ", ".join(otherwise) or "none",
    )  # fmt: skip


def _cells(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"
