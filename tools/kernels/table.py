"""Writes the table of docs/sandbox.md from the last results of all entries."""

from __future__ import annotations

import re

from tools.kernels.expected import PASSED
from tools.kernels.matrix import ENTRIES
from tools.kernels.places import ROOT, KernelsError
from tools.kernels.results import EntryResult, RunResult, kept
from tools.kernels.root_image import series_of

PAGE = ROOT / "docs" / "sandbox.md"
HEAD = (
    "| entry | kernel | Landlock ABI | as | doctor finds | weaker | attacks' cases held | other tests passed "
    "| otherwise, as listed |\n|---|---|---|---|---|---|---|---|---|\n"
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
    rows = "".join(row for entry in ENTRIES if (result := kept(entry.name)) for row in _rows(result))
    PAGE.write_text(_TABLE.sub(lambda _: HEAD + rows, text), encoding="utf-8")


def _rows(result: EntryResult) -> list[str]:
    kernel = f"{series_of(result.kernel['release'])}, {result.kernel['machine']}"
    return [_row(result.name, kernel, result.kernel["landlock_abi"], run) for run in result.runs]


def _row(name: str, kernel: str, abi: int, run: RunResult) -> str:
    attacks = {test: outcome for test, (outcome, _) in run.outcomes.items() if test.startswith(_ATTACKS)}
    others = {test: outcome for test, (outcome, _) in run.outcomes.items() if test not in attacks}
    passed = [sum(outcome == PASSED for outcome in part.values()) for part in (attacks, others)]
    otherwise = ", ".join(f"{count} {outcome}" for outcome, count in sorted(run.counts.items()) if outcome != PASSED)
    cells = (
        f"`{name}`", kernel, abi or "none", run.name, run.backend, ", ".join(run.weaker) or "nothing",
        passed[0] or "not run", passed[1] or "not run", otherwise or "none",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"
