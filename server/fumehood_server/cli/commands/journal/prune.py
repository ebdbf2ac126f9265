"""`fumehood journal prune`: removes arguments and results, or whole events, from before a day."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.journal_file import config_option, open_journal

if TYPE_CHECKING:
    from fumehood_server.journal.place import Place
    from fumehood_server.journal.store import Store

_DAYS = re.compile(r"(\d{1,5})d")
_DAY_S = 86_400


@click.command(short_help="Remove arguments and results, or whole events, from before a day.")
@click.option("--before", required=True, metavar="WHEN", help="A day such as 2026-11-01 (UTC), or an age such as 30d.")
@click.option("--events", "whole", is_flag=True, help="Remove the events as well: of them the hashes stay.")
@click.option("--shrink", is_flag=True, help="Give the file's free space back. Takes as much space meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def prune(before: str, whole: bool, shrink: bool, as_json: bool, config_path: Path | None) -> int:
    """Remove the arguments and results of events from before a day. The events stay, and the journal verifies.

    With --events whole events go, a few hundred at a time, but not those of calls whose outcome nobody knows yet. The
    journal still verifies; nothing is left to prove of what is gone.

    An event says what was removed. What is freed is used for new events. No sidecar may write a journal in a file
    meanwhile: one that runs removes them by itself, after `keep_payloads_d` and `keep_events_d` days of [journal].
    """
    import contextlib
    import secrets

    from fumehood_server.cli import output
    from fumehood_server.journal.checkpoints import Checkpointer
    from fumehood_server.journal.keys import JournalKeyError, load_key
    from fumehood_server.journal.pruned import pruned_so_far
    from fumehood_server.journal.retention import prune_slice, remove_events
    from fumehood_server.journal.store import StoreError

    before_us = _time_us(before)
    with open_journal(config_path) as journal:
        folder, place = journal.folder, journal.place
        if whole:
            _check_window(before, before_us, config_path)
        before_it = pruned_so_far(journal.reader)
    try:
        checkpointer = Checkpointer(load_key(folder))
    except JournalKeyError as error:
        raise CommandError(str(error), code="KEY_UNREADABLE", status=ExitStatus.FAILED) from error
    sidecar = secrets.token_hex(4)
    removed = 0
    try:
        with contextlib.closing(_opened(place, sidecar)) as store:
            while count := prune_slice(store, before_us, sidecar=sidecar):
                removed += count
            while whole and remove_events(store, before_us, sidecar):
                pass
            checkpointer(store)
            if shrink:
                store.shrink()
    except StoreError as error:
        todo = "What is removed so far stays so, and is recorded. Run this again to go on."
        problem = f"the removal stopped half-way, after {removed:,} arguments and results: {error}"
        raise CommandError(problem, todo, code="JOURNAL_UNREADABLE", status=ExitStatus.FAILED) from error
    with open_journal(config_path) as journal:
        events = pruned_so_far(journal.reader).removed - before_it.removed
    if as_json:
        output.print_json({"removed": removed, "removed_events": events})
    else:
        also = f" and {output.plural(events, 'event')}" if whole else ""
        output.say(f"{removed:,} arguments and results{also} from before {before} are removed.")
    return ExitStatus.OK


def _check_window(before: str, before_us: int, config_path: Path | None) -> None:
    """Refuse to forget calls whose ids still stand for them.

    Raises:
        CommandError: some would be.
    """
    from fumehood_server.config import find_config, load_config

    window_s = load_config(find_config(config_path)).journal.call_id_window_s
    if before_us > (time.time() - window_s) * 1e6:
        problem = f"events from before {before} may be of calls whose ids still stand for them, as for {window_s:,} s"
        todo = "Name an earlier day: such a call would run again. That time is `call_id_window_s` of [journal]."
        raise CommandError(problem, todo)


def _opened(place: Place, sidecar: str) -> Store:
    """The journal. A file no sidecar may write meanwhile.

    Raises:
        CommandError: one does, or the file can't be used.
    """
    from fumehood_server.journal.store import InUseError, StoreError

    try:
        return place.open_store(sidecar)
    except InUseError as error:
        todo = "Stop it first, or let it remove them by itself: `keep_payloads_d` of [journal]."
        raise CommandError(str(error), todo, code="JOURNAL_IN_USE", status=ExitStatus.FAILED) from error
    except StoreError as error:
        raise CommandError(str(error), code="JOURNAL_UNREADABLE", status=ExitStatus.FAILED) from error


def _time_us(text: str) -> int:
    """POSIX time in microseconds.

    Raises:
        CommandError: it is none.
    """
    age = _DAYS.fullmatch(text)
    if age is not None:
        return round((time.time() - int(age[1]) * _DAY_S) * 1e6)
    try:
        return round(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1e6)
    except ValueError as error:
        problem = f'"{text}" is no day and no age'
        raise CommandError(problem, "Write a day as 2026-11-01, or an age as 30d.") from error
