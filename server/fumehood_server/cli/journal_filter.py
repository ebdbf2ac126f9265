"""Options that choose events, the same for every command that reads the journal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fumehood_server.cli.complete import call_ids, event_types, plugin_names, run_ids, tool_names
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.journal_file import check_types

if TYPE_CHECKING:
    from fumehood.v1 import journal_service_pb2 as pb

    from fumehood_server.journal.query import EventQuery, Span

_Command = TypeVar("_Command", bound=Callable[..., Any])

_AGO = re.compile(r"-?(\d{1,9})(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the options of `filter_options` say. Empty fields ask for nothing."""

    types: tuple[str, ...]
    tool: str
    plugin: str
    call_id: str
    run_id: str
    session_id: str
    caller: str
    outcomes: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    after: int
    """-1: from the first."""
    before: int | None

    @property
    def is_narrow(self) -> bool:
        """Whether anything is asked for."""
        return self.after >= 0 or any(getattr(self, each.name) for each in fields(self) if each.name != "after")

    def query(self) -> EventQuery:
        """For a reader of the file."""
        from fumehood_server.journal.query import EventQuery

        return EventQuery(
            types=frozenset(self.types),
            since_us=_microseconds(self.since),
            until_us=_microseconds(self.until),
            call_id=self.call_id,
            run_id=self.run_id,
            session_id=self.session_id,
            tool=self.tool,
            plugin=self.plugin,
            caller=self.caller,
            outcomes=frozenset(self.outcomes),
        )

    def span(self, size: int, *, newest_first: bool = False) -> Span:
        """For a reader of a file of so many events."""
        from fumehood_server.journal.query import Span

        return Span(self.after + 1, size if self.before is None else min(size, self.before), newest_first)

    def message(self) -> pb.EventFilter:
        """For the sidecar."""
        from fumehood.v1 import journal_service_pb2 as pb

        wanted = pb.EventFilter(
            types=self.types,
            tool=self.tool,
            plugin=self.plugin,
            call_id=self.call_id,
            request_id=self.run_id,
            session_id=self.session_id,
            caller=self.caller,
            outcomes=self.outcomes,
        )
        if self.after >= 0:
            wanted.start_position = self.after + 1
        if self.before is not None:
            wanted.end_position = self.before
        if self.since is not None:
            wanted.start_time.FromMicroseconds(_microseconds(self.since))
        if self.until is not None:
            wanted.end_time.FromMicroseconds(_microseconds(self.until))
        return wanted


def filter_options(command: _Command) -> _Command:
    """Add the options. The command gets `Chosen` from `chosen(options)`."""
    position = click.IntRange(0, (1 << 62) - 1)
    options = (
        click.option(
            *("--type", "types"),
            multiple=True,
            metavar="TYPE",
            shell_complete=event_types,
            help="Only events of this type, such as execute_end.",
        ),
        click.option("--tool", default="", metavar="NAME", shell_complete=tool_names, help="Only of this tool."),
        click.option("--plugin", default="", metavar="NAME", shell_complete=plugin_names, help="Only of this plugin."),
        click.option("--call", "call_id", default="", metavar="ID", shell_complete=call_ids, help="Only of this call."),
        click.option(
            *("--run", "run_id"),
            default="",
            metavar="ID",
            shell_complete=run_ids,
            help="Only of this run: its calls have this request_id.",
        ),
        click.option("--session", "session_id", default="", metavar="ID", help="Only of calls with this session_id."),
        click.option("--caller", default="", metavar="NAME", help="Only starts of calls by this caller."),
        click.option(
            *("--outcome", "outcomes"),
            multiple=True,
            metavar="CODE",
            help="Only ends of calls that ended so: OK, or an error's code such as TOOL_TIMEOUT.",
        ),
        click.option("--since", metavar="TIME", help="Only from this time on: -1h, -30m, -2d, or ISO 8601."),
        click.option("--until", metavar="TIME", help="Only before this time."),
        click.option(
            "--after", default=-1, metavar="POSITION", help="Only after this event: go on where you left off."
        ),
        click.option("--before", type=position, metavar="POSITION", help="Only before this event."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def chosen(options: dict[str, Any]) -> Chosen:
    """What was given. Takes its options out of the dictionary.

    Raises:
        CommandError: a type or a time is none.
    """
    given = {each.name: options.pop(each.name) for each in fields(Chosen)}
    check_types(given["types"])
    now = datetime.now(UTC)
    for name in ("since", "until"):
        given[name] = None if given[name] is None else parse_time(given[name], now)
    return Chosen(**given)


def parse_time(text: str, now: datetime) -> datetime:
    """A time as it is typed: so long ago, or ISO 8601, of this machine's time zone where it names none.

    Raises:
        CommandError: it is none.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            return datetime.fromtimestamp(now.timestamp() - int(ago[1]) * _SECONDS[ago[2]], UTC)
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise CommandError(
            f'"{text}" is no time', "Give -1h, -30m, -2d, or a time such as 2026-01-31T12:00:00Z."
        ) from error


def _microseconds(time: datetime | None) -> int:
    return 0 if time is None else max(1, round(time.timestamp() * 1e6))
