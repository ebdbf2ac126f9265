"""docs/egress.md names every reason and every cap, as they are."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from fumehood_server.egress import EgressLimits, Reason

PAGE = (Path(__file__).parents[2] / "docs" / "egress.md").read_text()


def _table(section: str) -> dict[str, list[str]]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}


def test_every_reason_is_in_the_table_and_nothing_else() -> None:
    table = _table("Reasons")
    assert set(table) == set(Reason)
    for reason in Reason:
        assert ("retryable" in table[reason][0]) is reason.retryable


def test_the_rules_name_reasons_that_exist() -> None:
    rules = PAGE.partition("\n## The rules")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`|`(timeout)`", rules))
    words = {first or second for first, second in named}
    relay_alone = {Reason.PROXY_REQUEST_INVALID, Reason.RELAY_BUSY, Reason.TUNNEL_TOO_LARGE}
    assert words == set(Reason) - relay_alone


def test_every_cap_is_in_the_table_with_its_default() -> None:
    table = _table("Caps")
    assert {name: float(cells[0]) for name, cells in table.items()} == asdict(EgressLimits())
