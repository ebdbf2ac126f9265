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
    from fumehood_server.journal.sqlite import SqliteReader

config_option = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve."
)


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """A journal that can be read, and the folder of its key."""

    reader: SqliteReader
    folder: Path


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
    from fumehood_server.config import find_config, load_config
    from fumehood_server.journal import JOURNAL_NAME
    from fumehood_server.journal.sqlite import SqliteReader
    from fumehood_server.journal.store import NewerJournalError, StoreError

    folder = load_config(find_config(config_path)).server.state_dir
    path = folder / JOURNAL_NAME
    if not path.exists():
        raise CommandError(
            f"there is no journal {path}",
            "`fumehood serve` makes it. Give its configuration by --config where it is another's.",
            code="NOT_FOUND",
        )
    try:
        with contextlib.closing(SqliteReader(path)) as reader:
            yield OpenJournal(reader, folder)
    except (StoreError, NewerJournalError) as error:
        raise CommandError(str(error), code="JOURNAL_UNREADABLE", status=ExitStatus.FAILED) from error
