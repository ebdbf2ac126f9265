"""`fumehood journal export`: writes events as JSON Lines."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.journal_file import config_option, open_journal


@click.command(short_help="Write events as JSON Lines.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type, such as execute_end.")
@click.option("--tool", default="", metavar="NAME", help="Only events of this tool.")
@click.option("--plugin", default="", metavar="NAME", help="Only events of this plugin.")
@click.option("--after", default=-1, metavar="POSITION", help="Only events after this one: goes on where you left off.")
@config_option
def export(types: tuple[str, ...], tool: str, plugin: str, after: int, config_path: Path | None) -> None:
    """Write each event on a line of its own, as it was hashed, with its position.

    \b
    Examples:
      fumehood journal export > journal.jsonl
      fumehood journal export --type execute_end | jq -r 'select(.event.data.error != null) | .event.call_id'
    """
    import orjson

    from fumehood_server.cli import output
    from fumehood_server.cli.journal_file import check_types
    from fumehood_server.journal.store import EventFilter

    check_types(types)
    wanted = EventFilter(types=frozenset(types), tool=tool, plugin=plugin)
    with open_journal(config_path) as journal:
        while events := journal.reader.events(wanted, after=after, limit=1_000):
            for event in events:
                output.print_json({"position": event.position, "event": orjson.loads(event.body)}, compact=True)
            after = events[-1].position
