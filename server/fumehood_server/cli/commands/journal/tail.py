"""`fumehood journal tail`: prints the newest events, and follows the journal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.journal_file import config_option, open_journal
from fumehood_server.cli.journal_filter import Chosen, chosen, filter_options

if TYPE_CHECKING:
    from fumehood.v1.journal_service_pb2 import EventFilter

    from fumehood_server.cli.client import SidecarClient

_POLL_S = 0.2
"""Between two looks into the file. Through a sidecar nobody polls."""

_RETRY_S = 0.5
"""Between two tries to find a sidecar where one was."""

_GONE = frozenset({"UNREACHABLE", "UNAVAILABLE", "DRAINING", "CANCELLED"})
_UNREADABLE = "JOURNAL_UNAVAILABLE"
_NO_SERVICE = frozenset({"UNREACHABLE", "UNIMPLEMENTED", "JOURNAL_OFF"})


@click.command(short_help="Print the newest events; -f goes on with new ones.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until Ctrl-C.")
@click.option("-n", "number", type=click.IntRange(0, 1_000), default=10, show_default=True, help="Begin with these.")
@filter_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line, as export does.")
@address_option
@config_option
def tail(
    follow: bool,
    number: int,
    as_json: bool,
    address: str | None,
    config_path: Path | None,
    **options: Any,  # noqa: ANN401 - click's
) -> None:
    """Print the newest events, of the sidecar that serves, or of its file where none does.

    \b
    Examples:
      fumehood journal tail -f
      fumehood journal tail -f --type limit_reached --type events_lost
      fumehood journal tail -n 0 -f --json --tool write_file | jq .event.data
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.journal_lines import event_json, print_line
    from fumehood_server.journal.encoding import decode

    wanted = chosen(options)
    try:
        for position, body in _events(wanted, number, follow, address, config_path):
            if as_json:
                output.print_json(event_json(position, body), compact=True)
            else:
                print_line(position, decode(body))
    except KeyboardInterrupt:
        if not follow:
            raise


def _events(
    wanted: Chosen, number: int, follow: bool, address: str | None, config_path: Path | None
) -> Iterator[tuple[int, bytes]]:
    from fumehood_server.cli.client import SidecarClient

    if config_path is None or address is not None:
        with contextlib.ExitStack() as stack:
            try:
                client = stack.enter_context(SidecarClient(address))
                newest, size = client.newest_events(wanted.message(), number)
            except CommandError as error:
                if address is not None or error.code not in _NO_SERVICE:
                    raise
            else:
                yield from ((event.position, event.body_json.encode()) for event in reversed(newest))
                if follow and (wanted.before is None or size < wanted.before):
                    yield from _followed(client, wanted, size)
                return
    yield from _by_file(wanted, number, follow, config_path)


def _followed(client: SidecarClient, wanted: Chosen, size: int) -> Iterator[tuple[int, bytes]]:
    """Events from there on, without a gap, over the sidecar's end and the next one's start, or its database's."""
    from fumehood_server.cli import output
    from fumehood_server.cli.client import SidecarClient

    onward = wanted.message()
    onward.start_position = max(size, wanted.after + 1)
    lost = ""
    while True:
        try:
            with contextlib.nullcontext(client) if not lost else SidecarClient(client.target) as current:
                for position, body in _watched(current, onward):
                    if lost:
                        output.note(f"(the journal of {client.target} is followed again)")
                        lost = ""
                    yield position, body
            if wanted.before is not None and onward.start_position >= wanted.before:
                return
            why = "has ended"
        except CommandError as error:
            if error.code not in _GONE | {_UNREADABLE}:
                raise
            why = "can't read its journal now" if error.code == _UNREADABLE else "has ended"
        if why != lost:
            lost = why
            output.note(f"(the sidecar at {client.target} {why}: waiting until its journal can be followed)")
        time.sleep(_RETRY_S)


def _watched(client: SidecarClient, onward: EventFilter) -> Iterator[tuple[int, bytes]]:
    """The events of one stream. `onward` is moved on with them."""
    from fumehood_server.cli import output

    for message in client.watch_events(onward):
        if message.HasField("missed"):
            missed = message.missed.end_position - message.missed.start_position
            output.note(f"({output.plural(missed, 'event')} left out: too many at once; see fumehood journal list)")
        for event in message.events:
            yield event.position, event.body_json.encode()
        onward.start_position = message.next_position


def _by_file(wanted: Chosen, number: int, follow: bool, config_path: Path | None) -> Iterator[tuple[int, bytes]]:
    from fumehood_server.cli.journal_lines import selected

    with open_journal(config_path) as journal:
        reader = journal.reader
        size = reader.size()
        newest = [*islice(selected(reader, wanted, wanted.span(size, newest_first=True)), number)]
        for event in reversed(newest):
            yield event.position, event.body
        while follow and (wanted.before is None or size < wanted.before):
            time.sleep(_POLL_S)
            after, size = size, reader.size()
            span = wanted.span(size)
            for event in selected(reader, wanted, type(span)(max(span.start, after), span.end)):
                yield event.position, event.body
