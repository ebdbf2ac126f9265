"""One line of a waterfall: see `fumehood_server.cli.journal_waterfall`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bar:
    """One line: a stretch of time, or a moment where both of its ends are one."""

    start_us: int
    end_us: int | None
    """None: it goes on."""
    name: str
    text: str = ""
    id: str = ""
    wait_us: int = 0
    """How much of it was waited, at the beginning."""
    style: str = ""
    within: list[Bar] = field(default_factory=list)
