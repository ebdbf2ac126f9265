"""`fumehood journal export`: writes events as JSON Lines, or as Parquet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fumehood_server.cli.journal_file import config_option, open_journal
from fumehood_server.cli.journal_filter import chosen, filter_options


@click.command(short_help="Write events as JSON Lines, or as Parquet.")
@filter_options
@click.option(
    *("--format", "form"),
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    help="Default: jsonl.",
    metavar="FORM",
)
@click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@config_option
def export(form: str, target: Path | None, config_path: Path | None, **options: Any) -> None:  # noqa: ANN401 - click's
    """Write each event, as it was hashed, with its position: JSON Lines (jsonl) or Parquet, to FILE or stdout.

    \b
    Examples:
      fumehood journal export > journal.jsonl
      fumehood journal export --type execute_end | jq -r 'select(.event.data.error != null) | .event.call_id'
      fumehood journal export --since -1d --format parquet -o today.parquet

    Parquet takes the extra `parquet` of the distribution fumehood-server.
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.journal_lines import event_json, selected

    wanted = chosen(options)
    if form == "parquet" and target is None and sys.stdout.isatty():
        raise click.UsageError("Parquet is no text for a terminal: give -o FILE.")
    with open_journal(config_path) as journal:
        events = selected(journal.reader, wanted, wanted.span(journal.reader.size()))
        if form == "parquet":
            from fumehood_server.cli.journal_parquet import write_parquet

            if target is None:
                write_parquet(events, sys.stdout.buffer)
                return
            with target.open("wb") as file:
                written = write_parquet(events, file)
            output.note(f"{target}: {output.plural(written, 'event')}")
        elif target is None:
            for event in events:
                output.print_json(event_json(event.position, event.body), compact=True)
        else:
            with target.open("w", encoding="utf-8") as lines:
                for event in events:
                    lines.write(output.to_json(event_json(event.position, event.body), compact=True) + "\n")
