"""Runs of models, as `fumehood journal list --runs` lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from fumehood_server.cli.journal_filter import Chosen

if TYPE_CHECKING:
    from fumehood_server.journal.store import Reader

OPEN = "OPEN"
"""Of a run that has no end on record: it goes on, or was interrupted."""
_STYLES = {"COMPLETE": "", "FAILED": "red", "CANCELLED": "yellow", OPEN: "cyan"}
_PORTION = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run."""

    run_id: str
    session_id: str
    mode: str
    engine: str
    caller: str
    state: str
    """`COMPLETE`, `FAILED`, `CANCELLED` or `OPEN`."""
    error_code: str
    """Empty: it did not fail, or is open."""
    inferences: int
    tool_calls: int
    tokens: int
    """In and out together, as `cost` of the run once it has ended."""
    cost: float
    started_us: int
    position: int
    """Of its start."""


def runs_of_models(reader: Reader, wanted: Chosen) -> Iterator[RunRow]:
    """The runs whose start is wanted, and whose end has an outcome that is asked for, the newest first."""
    from fumehood_server.cli.journal_lines import selected
    from fumehood_server.journal.encoding import decode
    from fumehood_server.model.run_events import RunStarted

    starts = replace(wanted, types=(RunStarted.TYPE,), outcomes=())
    events = selected(reader, starts, wanted.span(reader.size(), newest_first=True))
    while some := [*islice(events, _PORTION)]:
        ends = _ends(reader, {each.subject for each in some})
        for event in some:
            row = _row(decode(event.body), ends.get(event.subject, {}), event.position)
            ended = "" if row.state == OPEN else row.error_code or "OK"
            if not wanted.outcomes or ended in wanted.outcomes:
                yield row


def print_runs(rows: Sequence[RunRow], *, as_json: bool, is_narrow: bool) -> None:
    """Print them. `is_narrow`: whether anything was asked for."""
    from fumehood_server.cli import output

    if as_json:
        output.print_json({"runs": [asdict(row) for row in rows]})
        return
    console = output.console()
    if not rows:
        console.print("No runs of models are recorded" + (" that fit." if is_narrow else " yet."))
        return
    table = output.table("STARTED (UTC)", "MODE", "ENGINE", "STATE", "ASKED", "CALLS", "TOKENS", "RUN")
    for row in rows:
        table.add_row(
            output.utc(row.started_us),
            output.styled(row.mode, "bold"),
            output.styled(row.engine),
            output.styled(row.error_code or row.state, _STYLES.get(row.state, "")),
            *("" if row.state == OPEN else f"{each:,}" for each in (row.inferences, row.tool_calls, row.tokens)),
            output.styled(row.run_id),
        )
    output.show_rows(console, table)


def _ends(reader: Reader, run_ids: set[str]) -> dict[str, dict[str, Any]]:
    """What ends of runs say, by run. A run has one at most."""
    from fumehood_server.journal.encoding import decode
    from fumehood_server.journal.store import EventFilter
    from fumehood_server.model.run_events import RunEnded

    ended = EventFilter(types=frozenset({RunEnded.TYPE}), subjects=tuple(sorted(run_ids)))
    return {each.subject: decode(each.body)["data"] for each in reader.events(ended, limit=len(run_ids))}


def _row(start: dict[str, Any], end: dict[str, Any], position: int) -> RunRow:
    data = start["data"]
    return RunRow(
        run_id=start["run_id"],
        session_id=start["context"].get("session_id", ""),
        mode=data["mode"],
        engine=data["engine"],
        caller=data["caller"],
        state=end.get("state", OPEN),
        error_code=end.get("error_code", ""),
        inferences=end.get("inferences", 0),
        tool_calls=end.get("tool_calls", 0),
        tokens=end.get("tokens_in", 0) + end.get("tokens_out", 0),
        cost=end.get("cost", 0.0),
        started_us=start["time_us"],
        position=position,
    )
