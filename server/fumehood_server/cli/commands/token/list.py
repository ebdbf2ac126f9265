"""`fumehood token list`: lists what is kept of tokens."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.journal_file import config_option


@click.command("list", short_help="List tokens, without what makes them secret.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def list_tokens(as_json: bool, config_path: Path | None) -> None:
    """List the tokens of all callers: their ids, and whether they hold.

    \b
    Example:
      fumehood token list --json | jq -r '.tokens[] | select(.state == "expired") | .id'
    """
    import time

    from fumehood_server.callers.token_file import read_tokens
    from fumehood_server.cli import output
    from fumehood_server.cli.token_lines import find_tokens, time_text, token_failures

    config, path = find_tokens(config_path)
    with token_failures():
        tokens = read_tokens(path)
    names, now = {each.name for each in config.callers}, time.time()
    rows = [
        {
            "id": each.token_id,
            "caller": each.caller,
            "state": "expired"
            if each.has_expired(now)
            else "valid"
            if each.caller in names
            else "caller is not in fumehood.toml",
            "created": time_text(each.created),
            "expires": time_text(each.expires) or None,
        }
        for each in sorted(tokens, key=lambda each: (each.caller, each.created))
    ]
    if as_json:
        output.print_json({"tokens": rows})
        return
    console = output.console()
    if not rows:
        console.print("There are no tokens: `fumehood token add NAME` makes one.")
        return
    table = output.table("ID", "CALLER", "STATE", "CREATED", "EXPIRES")
    for row in rows:
        style = "" if row["state"] == "valid" else "yellow"
        table.add_row(
            output.styled(str(row["id"]), "bold"),
            output.styled(str(row["caller"])),
            output.styled(str(row["state"]), style),
            output.styled(str(row["created"])),
            output.styled(str(row["expires"] or "never")),
        )
    output.show_rows(console, table)
