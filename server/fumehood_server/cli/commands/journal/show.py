"""`fumehood journal show`: draws a run or a call as a waterfall."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.cli.complete import run_or_call_ids
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.journal_file import config_option, open_journal

if TYPE_CHECKING:
    from fumehood_server.cli.journal_bar import Bar
    from fumehood_server.journal.store import Reader

_MAX_EVENTS = 20_000
_MIN_COLUMNS = 16
_TEXT_COLUMNS = 30
"""Left for what the bars say, at least."""
_ID_COLUMNS = 40
"""Beyond the ids that the sidecar gives (37). Longer ones stand below their bars."""


@click.command(short_help="Draw a run, or a call, on an axis of time.")
@click.argument("run", metavar="RUN|CALL", shell_complete=run_or_call_ids)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def show(run: str, as_json: bool, config_path: Path | None) -> None:
    """Draw what happened in a run (a request_id or a session_id) or in one call: a bar for each call.

    A run of a model has a bar for itself, its states beneath, and one for each time that a model is asked.

    \b
    ░ waits for a worker, or to ask again, █ runs, ▒ has no outcome yet,
    │ a moment: an attempt, a limit, a word from the operator.
    A line beneath a call is what happened within it: requests through the broker, secrets, limits.
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.journal_waterfall import axis_of, bars_of

    with open_journal(config_path) as journal:
        found, is_all = _events(journal.reader, run)
    if not found:
        raise CommandError(f"no run and no call {run} is recorded", "See fumehood journal list.", code="NOT_FOUND")
    if as_json:
        output.print_json({"events": found, "complete": is_all})
        return
    bars = bars_of(found)
    console = output.console()
    names = max(max(len(bar.name), *(len(each.name) for each in bar.within), 0) for bar in bars)
    text = min(max(_TEXT_COLUMNS, *(len(bar.id) for bar in bars)), _ID_COLUMNS)  # an id isn't broken
    columns = max(console.width - text - min(names, _TEXT_COLUMNS) - 30, _MIN_COLUMNS)
    axis = axis_of(bars, columns)
    length = output.seconds((axis.end_us - axis.start_us) / 1e6)
    table = output.table("AFTER", "TOOK", "WHAT", f"0 {length:>{columns - 2}}", "HOW")
    for bar in bars:
        for each in (bar, *bar.within):
            table.add_row(
                output.seconds((each.start_us - axis.start_us) / 1e6),
                "" if each.end_us in {None, each.start_us} else output.seconds(_took_s(each)),
                output.styled(each.name, "bold" if each is bar else each.style),
                output.styled(axis.draw(each), each.style),
                output.styled(output.one_line(" ".join(filter(None, (each.id, each.text))))),
            )
    output.show_rows(console, table)
    if not is_all:
        output.note(f"These are its first {_MAX_EVENTS:,} events: fumehood journal export --run has the others.")


def _took_s(bar: Bar) -> float:
    return ((bar.end_us or bar.start_us) - bar.start_us) / 1e6


def _events(reader: Reader, run: str) -> tuple[list[dict[str, Any]], bool]:
    """The events of a call, else of a run, else of a session, and whether they are all."""
    from fumehood_server.journal.encoding import decode
    from fumehood_server.journal.query import Bounds, EventQuery, Span
    from fumehood_server.model.event_types import EVENTS
    from fumehood_server.model.run_events import SessionTurn

    size = reader.size()
    # What a session's runs added to it is filed under the session as its run, and would hide the runs themselves.
    of_runs = frozenset(EVENTS) - {SessionTurn.TYPE}
    for query in (EventQuery(call_id=run), EventQuery(run_id=run, types=of_runs), EventQuery(session_id=run)):
        found: list[dict[str, Any]] = []
        rest: Span | None = Span(0, size)
        while rest is not None and len(found) < _MAX_EVENTS:
            page = reader.search(query, rest, Bounds(events=1_000, body_bytes=4 * 1024 * 1024))
            room = _MAX_EVENTS - len(found)
            found += [decode(each.body) | {"position": each.position} for each in islice(page.events, room)]
            rest = page.rest
        if found:
            return found, rest is None
    return [], True
