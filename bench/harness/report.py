"""What a run found: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ISSUE = 1
"""Whose targets these are, as its text numbers them."""

_WHOLE_FROM = 100
"""Numbers from here on are printed without a fraction."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `figures` maps a name with its unit to a number, such as "p50_ms"."""

    scenario: str
    contender: str
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: a value that must stay below a limit, or above it."""

    name: str
    value: float
    limit: float
    at_least: bool = False
    issue: int = ISSUE

    @property
    def holds(self) -> bool:
        """Whether the promise is kept. A bound itself is within."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(slots=True)
class Report:
    """Everything that a run found."""

    rows: list[Row] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be measured, and why."""

    def add(self, rows: Iterable[Row] = (), targets: Iterable[Target] = (), notes: Iterable[str] = ()) -> None:
        """Take a scenario's findings."""
        self.rows.extend(rows)
        self.targets.extend(targets)
        self.notes.extend(notes)


def write_json(report: Report, path: Path) -> None:
    """Write `{"rows": [...], "targets": [...], "notes": [...]}`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "rows": [
            {"scenario": row.scenario, "contender": row.contender}
            | {name: round(value, 4) for name, value in row.figures.items()}
            for row in report.rows
        ],
        "targets": [
            {
                "issue": target.issue,
                "name": target.name,
                "value": round(target.value, 4),
                "limit": target.limit,
                "bound": "at least" if target.at_least else "at most",
                "holds": target.holds,
            }
            for target in report.targets
        ],
        "notes": report.notes,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def print_tables(report: Report) -> None:
    """Print one table a scenario and one of the targets."""
    console = Console(width=120, highlight=False)
    for scenario in dict.fromkeys(row.scenario for row in report.rows):
        rows = [row for row in report.rows if row.scenario == scenario]
        _print_rows(console, scenario, rows)
    table = Table("target", "value", "limit", "holds", title="targets", title_justify="left")
    for target in report.targets:
        limit = f"{'≥' if target.at_least else '≤'} {target.limit:g}"
        table.add_row(target.name, f"{target.value:.2f}", limit, "yes" if target.holds else "[bold red]NO[/]")
    if report.targets:
        console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", markup=False)


def _print_rows(console: Console, scenario: str, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    table = Table("contender", title=scenario, title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.contender, *(_number(row.figures.get(name)) for name in names))
    console.print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if abs(value) < _WHOLE_FROM else f"{value:,.0f}"
