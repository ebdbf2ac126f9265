"""`fumehood journal show`: draws a run or a call as a waterfall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.journal_file import config_option, open_journal

_BAR = 32
_MAX_EVENTS = 5_000


@click.command(short_help="Draw a run, or a call, event by event.")
@click.argument("run", metavar="RUN|CALL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def show(run: str, as_json: bool, config_path: Path | None) -> None:
    """Draw what happened in a run (a request_id or a session_id) or in one call, and when."""
    from fumehood_server.cli import output
    from fumehood_server.journal.encoding import decode
    from fumehood_server.journal.store import EventFilter

    with open_journal(config_path) as journal:
        reader = journal.reader
        events = reader.events_of_call(run)
        if not events:
            events = reader.events(EventFilter(subjects=(run,)), limit=_MAX_EVENTS)
            for call_id in reader.calls_of_run(run)[:_MAX_EVENTS]:
                events += reader.events_of_call(call_id)
        found = [decode(each.body) | {"position": each.position} for each in sorted(events, key=_position)]
    if not found:
        raise CommandError(f"no run and no call {run} is recorded", "See fumehood journal list.", code="NOT_FOUND")
    if as_json:
        output.print_json({"events": found})
        return
    start, end = found[0]["time_us"], found[-1]["time_us"]
    console = output.console()
    table = output.table("AFTER", "", "EVENT", "TOOL", "WHAT")
    for event in found:
        table.add_row(
            output.seconds((event["time_us"] - start) / 1e6),
            output.styled(_bar(event["time_us"], start, end, _began(event, found)), "cyan"),
            output.styled(event["type"], "bold"),
            output.styled(event["tool"]),
            output.styled(_what(event)),
        )
    output.show_rows(console, table)


def _position(event: Any) -> int:  # noqa: ANN401 - a stored event
    position: int = event.position
    return position


def _began(event: dict[str, Any], events: Sequence[dict[str, Any]]) -> int:
    """When what ends here began: the start of its call."""
    if event["type"] not in {"execute_end", "execute_cancelled"}:
        return int(event["time_us"])
    return next(int(each["time_us"]) for each in events if each["call_id"] == event["call_id"])


def _bar(time_us: int, start: int, end: int, began: int) -> str:
    scale = (_BAR - 1) / max(end - start, 1)
    first, last = round((began - start) * scale), round((time_us - start) * scale)
    return " " * first + ("━" * (last - first) if last > first else "") + "╸"


def _what(event: dict[str, Any]) -> str:
    data = event["data"]
    match event["type"]:
        case "execute_start":
            return f"{event['call_id']} {data['side_effects'] or 'no tool'}"
        case "execute_attempt":
            return f"attempt {data['attempt']} on {data['worker_id']}"
        case "execute_end" | "execute_cancelled":
            error = data["error"]
            how = "OK" if error is None else f"{error['code']}: {error['message']}"
            updates = f", {data['updates']} updates" if data["updates"] else ""
            return f"{how}{updates}"
        case _:
            return ", ".join(f"{name}={value}" for name, value in data.items())
