"""Writes the table of docs/sandbox.md from the last results of all entries."""

from __future__ import annotations

import re

from tools.kernels.expected import PASSED, surprises
from tools.kernels.matrix import ENTRIES, Entry
from tools.kernels.places import ROOT, KernelsError
from tools.kernels.results import NO_BACKEND, EntryResult, RunResult, kept
from tools.kernels.root_image import series_of

PAGE = ROOT / "docs" / "sandbox.md"
HEAD = (
    "| command | set-up | kernel | Landlock ABI | as | doctor finds | weaker or missing | attacks' cases held "
    "| other tests passed | otherwise |\n|---|---|---|---|---|---|---|---|---|---|\n"
)
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
_ATTACKS = "tests/attacks/"


def write_tables() -> None:
    """Replace the rows in the page.

    Raises:
        KernelsError: the page has no such table.
    """
    text = PAGE.read_text(encoding="utf-8")
    if not _TABLE.search(text):
        raise KernelsError(f"{PAGE} has no table with the head {HEAD!r}")
    rows = "".join(row for entry in ENTRIES for row in _rows(entry, kept(entry.name)))
    PAGE.write_text(_TABLE.sub(lambda _: HEAD + rows, text), encoding="utf-8")


def _rows(entry: Entry, result: EntryResult | None) -> list[str]:
    start = (f"`make test-kernels ONLY={entry.name}`", entry.about)
    if result is None or not result.runs:
        return [_cells(*start, entry.kernel, *("not run",) * 7)]
    kernel = f"{series_of(result.kernel['release'])}, {result.kernel['machine']}"
    return [_cells(*start, kernel, result.kernel["landlock_abi"] or "none", *_told(entry, run)) for run in result.runs]


def _told(entry: Entry, run: RunResult) -> tuple[object, ...]:
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
