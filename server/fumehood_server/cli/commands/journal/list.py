"""`fumehood journal list`: lists the newest calls."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.journal_file import config_option, open_journal

STATE_STYLES = {"ended": "", "unknown": "red", "resolved": "yellow", "started": "cyan", "dispatched": "cyan"}


@click.command("list", short_help="List the newest calls.")
@click.option("--run", "run_id", default="", metavar="ID", help="Only calls of this run, or of this session.")
@click.option("-n", "number", default=20, type=click.IntRange(1, 10_000), help="So many. Default: 20.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def list_runs(run_id: str, number: int, as_json: bool, config_path: Path | None) -> None:
    """List calls, the newest first.

    \b
    States: started and dispatched have no outcome yet; unknown may have had effects that nobody knows of.
    """
    from datetime import UTC, datetime

    from fumehood_server.cli import output

    with open_journal(config_path) as journal:
        rows = journal.reader.newest_calls(run_id=run_id, limit=number)
    if as_json:
        calls = [
            {
                "call_id": row.call_id,
                "run_id": row.run_id,
                "session_id": row.session_id,
                "tool": row.tool,
                "state": row.state.name.lower(),
                "started_us": row.started_us,
            }
            for row in rows
        ]
        output.print_json({"calls": calls})
        return
    console = output.console()
    if not rows:
        console.print("No calls are recorded" + (" of that run." if run_id else " yet."))
        return
    table = output.table("STARTED (UTC)", "TOOL", "STATE", "CALL", "RUN")
    for row in rows:
        state = row.state.name.lower()
        table.add_row(
            datetime.fromtimestamp(row.started_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            output.styled(row.tool, "bold"),
            output.styled(state, STATE_STYLES[state]),
            output.styled(row.call_id),
            output.styled(row.run_id, "dim"),
        )
    output.show_rows(console, table)
