"""The journal of a configuration, for the commands that read it beside the sidecar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from fumehood_server.journal.place import Place
    from fumehood_server.journal.postgres.driver import DriverMissingError
    from fumehood_server.journal.store import Reader

config_option = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve."
)


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """A journal that can be read, and the folder of its key."""

    reader: Reader
    folder: Path
    place: Place


def check_types(types: tuple[str, ...]) -> None:
    """Refuse a type of events that there is not.

    Raises:
        CommandError: it is none.
    """
    from fumehood_server.model.event_types import EVENTS

    for each in types:
        if each not in EVENTS:
            raise CommandError(f'there are no events of type "{each}"', f"There are: {', '.join(EVENTS)}.")


@contextlib.contextmanager
def open_journal(config_path: Path | None) -> Iterator[OpenJournal]:
    """The journal that this configuration's sidecar writes.

    Raises:
        CommandError: there is none, or it can't be read.
    """
    from fumehood_server.journal.store import NewerJournalError, NoJournalError, StoreError

    place, folder = journal_place(config_path)
    try:
        with contextlib.closing(place.open_reader()) as reader:
            yield OpenJournal(reader, folder, place)
    except NoJournalError as error:
        raise CommandError(
            f"there is no journal {place}",
            "`fumehood serve` makes it. Give its configuration by --config where it is another's.",
            code="NOT_FOUND",
        ) from error
    except (StoreError, NewerJournalError) as error:
        raise CommandError(str(error), code="JOURNAL_UNREADABLE", status=ExitStatus.FAILED) from error


def journal_place(config_path: Path | None) -> tuple[Place, Path]:
    """Where this configuration's sidecar writes the journal, and the folder of its key.

    Raises:
        CommandError: it lies in PostgreSQL, and what reads that is not installed.
    """
    from fumehood_server.config import find_config, load_config
    from fumehood_server.journal.place import place_of
    from fumehood_server.journal.postgres.driver import DriverMissingError

    config = load_config(find_config(config_path))
    folder = config.server.state_dir
    try:
        return place_of(folder, config.journal.database), folder
    except DriverMissingError as error:
        raise driver_missing(error) from error


def driver_missing(error: DriverMissingError) -> CommandError:
    """What is said where psycopg isn't installed."""
    from fumehood_server.journal.postgres.driver import INSTALL

    return CommandError(
        "a journal in PostgreSQL takes psycopg, which is not installed",
        f"Run {INSTALL}.",
        code="EXTRA_MISSING",
        status=ExitStatus.FAILED,
        details={"extra": "postgresql", "problem": str(error)},
    )
