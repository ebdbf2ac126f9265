"""`fumehood journal list`: lists calls, or events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.cli.journal_file import config_option, open_journal
from fumehood_server.cli.journal_filter import Chosen, chosen, filter_options

if TYPE_CHECKING:
    from fumehood_server.journal.entry import CallRow
    from fumehood_server.journal.store import Reader, StoredEvent

STATE_STYLES = {"ended": "", "unknown": "red", "resolved": "yellow", "started": "cyan", "dispatched": "cyan"}
_PORTION = 500


@click.command("list", short_help="List the newest calls, or events.")
@filter_options
@click.option("--events", "of_events", is_flag=True, help="List events instead of calls. --type does so, too.")
@click.option("--runs", "of_runs", is_flag=True, help="List runs of models instead of calls.")
@click.option("-n", "number", default=20, type=click.IntRange(1, 10_000), help="So many. Default: 20.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def list_runs(
    of_events: bool,
    of_runs: bool,
    number: int,
    as_json: bool,
    config_path: Path | None,
    **options: Any,  # noqa: ANN401 - click's
) -> None:
    """List calls, the newest first; with --events or --type events, with --runs runs of models. --run takes a session.

    \b
    States: started and dispatched have no outcome yet; unknown may have had effects that nobody knows of.
    Outcomes: OK, or an error's code, as for --outcome.
    \b
    Examples:
      fumehood journal list --since -1h --outcome TOOL_TIMEOUT --outcome TOOL_RESOURCE_EXHAUSTED
      fumehood journal list --tool write_file -n 5
      fumehood journal list --runs --caller alice
      fumehood journal list --type limit_reached --since 2026-01-31
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.journal_lines import event_json, selected
    from fumehood_server.cli.journal_runs import print_runs, runs_of_models

    wanted = chosen(options)
    if of_runs and (of_events or wanted.types):
        raise click.UsageError("--runs lists runs: give it without --events and --type.")
    with open_journal(config_path) as journal:
        reader = journal.reader
        wanted = _run_or_session(reader, wanted)
        if of_events or wanted.types:
            events = [*islice(selected(reader, wanted, wanted.span(reader.size(), newest_first=True)), number)]
            if as_json:
                output.print_json({"events": [event_json(each.position, each.body) for each in events]})
            else:
                _print_events(events)
            return
        if of_runs:
            runs = [*islice(runs_of_models(reader, wanted), number)]
            print_runs(runs, as_json=as_json, is_narrow=wanted.is_narrow)
            return
        rows = [(row, _outcome(reader, row)) for row in islice(_calls(reader, wanted), number)]
    if as_json:
        output.print_json({"calls": [_call_json(*each) for each in rows]})
    else:
        _print_calls(rows, wanted)


def _run_or_session(reader: Reader, wanted: Chosen) -> Chosen:
    """`--run` may name a session."""
    from fumehood_server.journal.query import Bounds, EventQuery, Span
    from fumehood_server.model.event_types import EVENTS
    from fumehood_server.model.run_events import SessionTurn

    if not wanted.run_id or wanted.session_id:
        return wanted
    # Of a session itself there are its turns, which are filed under it.
    of_runs = EventQuery(run_id=wanted.run_id, types=frozenset(EVENTS) - {SessionTurn.TYPE})
    found = reader.search(of_runs, Span(0, reader.size()), Bounds(1, 1))
    return wanted if found.events else replace(wanted, run_id="", session_id=wanted.run_id)


def _calls(reader: Reader, wanted: Chosen) -> Iterator[CallRow]:
    """The calls whose end, where an outcome is asked for, or else whose start is wanted, the newest first."""
    from fumehood_server.cli.journal_lines import selected
    from fumehood_server.journal.query import ENDS_OF_CALLS
    from fumehood_server.model.events import ExecuteStart

    types = (*ENDS_OF_CALLS,) if wanted.outcomes else (ExecuteStart.TYPE,)
    events = selected(reader, replace(wanted, types=types), wanted.span(reader.size(), newest_first=True))
    while some := [*islice(events, _PORTION)]:
        rows = reader.calls({each.subject for each in some})
        for event in some:
            row = rows.get(event.subject)
            if row is not None and event.position in {row.start_position, row.end_position}:
                yield row


def _outcome(reader: Reader, row: CallRow) -> str:
    """How a call ended: `OK`, or the code of its error. Empty: it has not, or its end isn't there any more."""
    from fumehood_server.journal.encoding import decode
    from fumehood_server.journal.query import outcome_of

    if row.end_position is None:
        return ""
    return "".join(outcome_of(decode(body)) for body in reader.bodies(row.end_position, row.end_position + 1))


def _call_json(row: CallRow, outcome: str) -> dict[str, Any]:
    return {
        "call_id": row.call_id,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "tool": row.tool,
        "state": row.state.name.lower(),
        "outcome": outcome or None,
        "started_us": row.started_us,
        "position": row.start_position,
    }


def _print_calls(rows: Sequence[tuple[CallRow, str]], wanted: Chosen) -> None:
    from fumehood_server.cli import output
    from fumehood_server.journal.query import OK

    console = output.console()
    if not rows:
        console.print("No calls are recorded" + (" that fit." if wanted.is_narrow else " yet."))
        return
    table = output.table("STARTED (UTC)", "TOOL", "STATE", "OUTCOME", "CALL", "RUN")
    for row, outcome in rows:
        state = row.state.name.lower()
        table.add_row(
            output.utc(row.started_us),
            output.styled(row.tool, "bold"),
            output.styled(state, STATE_STYLES[state]),
            output.styled(outcome, "green" if outcome == OK else "red"),
            output.styled(row.call_id),
            output.styled(row.run_id, "dim"),
        )
    output.show_rows(console, table)


def _print_events(events: Sequence[StoredEvent]) -> None:
    from fumehood_server.cli import output
    from fumehood_server.cli.journal_lines import what_happened
    from fumehood_server.journal.encoding import decode

    console = output.console()
    if not events:
        console.print("No events are recorded that fit.")
        return
    table = output.table("AT", "TIME (UTC)", "TYPE", "TOOL", "CALL", "WHAT")
    for event in events:
        fields = decode(event.body)
        table.add_row(
            str(event.position),
            output.utc(event.time_us),
            output.styled(event.type, "bold"),
            output.styled(event.tool),
            output.styled(fields["call_id"]),
            output.styled(output.one_line(what_happened(fields))),
        )
    output.show_rows(console, table)
