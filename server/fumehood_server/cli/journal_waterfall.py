"""A run as a waterfall: a bar for each call and inference on one axis of time, and beneath it what happened within."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fumehood_server.cli.journal_bar import Bar
from fumehood_server.cli.journal_lines import outcome_text, what_happened
from fumehood_server.cli.journal_run_bars import RunBars

WAITING, RUNNING, OPEN, MARK = "░", "█", "▒", "│"
_ENDS = frozenset({"execute_end", "execute_cancelled"})


def bars_of(events: Iterable[Mapping[str, Any]]) -> list[Bar]:
    """The calls and inferences of decoded events in the order of their starts, and what belongs to none among them."""
    bars: list[Bar] = []
    calls: dict[str, Bar] = {}
    runs = RunBars()
    not_begun: set[str] = set()
    """Calls that waited for their approval so far."""
    for event in events:
        call_id, time_us = event["call_id"], event["time_us"]
        drawn = runs.take(event)
        if drawn is not None:
            bars += drawn
            continue
        call = calls.get(call_id)
        is_start = event["type"] == "execute_start"
        if is_start and call_id in not_begun:
            not_begun.discard(call_id)
        elif is_start or (call_id and call is None):
            not_begun.update([] if is_start else [call_id])
            call = calls[call_id] = Bar(time_us, None, event["tool"], id=call_id, text="has no outcome", style="cyan")
            bars.append(call)
        if is_start:
            continue
        if call is None:
            bars.append(Bar(time_us, time_us, event["type"], what_happened(event), style="dim"))
        elif event["type"] in _ENDS:
            data = event["data"]
            call.end_us, call.text = time_us, outcome_text(data)
            # What was waited is measured by another clock than the one that stamps events.
            call.wait_us = min(data["queue_us"], time_us - call.start_us)
            call.style = "green" if data["error"] is None else "yellow" if data["outcome_unknown"] else "red"
        else:
            call.within.append(_detail(event))
    return bars


def _detail(event: Mapping[str, Any]) -> Bar:
    time_us = event["time_us"]
    took_us = event["data"].get("wall_us")
    start = time_us - took_us if isinstance(took_us, int) else time_us
    style = "red" if event["type"] == "limit_reached" else "magenta" if event["type"] == "egress" else "blue"
    name = event["type"].removeprefix("execute_")
    return Bar(start, time_us, f"  {name}", what_happened(event), style=style)


@dataclass(frozen=True, slots=True)
class Axis:
    """Time from left to right, in so many columns."""

    start_us: int
    end_us: int
    columns: int

    def draw(self, bar: Bar) -> str:
        """The bar: at least one column, waiting before running."""
        first = self._column(bar.start_us)
        if bar.end_us is not None and bar.end_us == bar.start_us:
            return " " * first + MARK
        last = max(self._column(self.end_us if bar.end_us is None else bar.end_us), first)
        waited = self._column(bar.start_us + bar.wait_us) - first if bar.wait_us else 0
        running = OPEN if bar.end_us is None else RUNNING
        return (
            " " * first + WAITING * min(waited, last - first) + running * (last - first + 1 - min(waited, last - first))
        )

    def _column(self, time_us: int) -> int:
        share = (time_us - self.start_us) / max(self.end_us - self.start_us, 1)
        return min(max(int(share * self.columns), 0), self.columns - 1)


def axis_of(bars: Iterable[Bar], columns: int) -> Axis:
    """From the first start to the last end. There must be a bar."""
    flat = [each for bar in bars for each in (bar, *bar.within)]
    return Axis(
        min(bar.start_us for bar in flat),
        max(bar.start_us if bar.end_us is None else bar.end_us for bar in flat),
        columns,
    )
