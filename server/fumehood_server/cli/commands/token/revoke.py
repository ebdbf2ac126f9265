"""`fumehood token revoke`: removes tokens."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.journal_file import config_option


@click.command(short_help="Take a token back, or all of a caller's.")
@click.argument("wanted", metavar="ID|NAME")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def revoke(wanted: str, as_json: bool, config_path: Path | None) -> None:
    """Take the token ID back, or all tokens of the caller NAME. They are refused once this returns.

    Calls that are under way go on to their end. A Session stays open and is refused its next call; a stream of logs or
    of the journal ends before its next line.
    """
    from fumehood_server.callers.token_file import changing
    from fumehood_server.cli import output
    from fumehood_server.cli.token_lines import find_tokens, token_failures

    _, path = find_tokens(config_path)
    with token_failures(), changing(path) as tokens:
        gone = [each for each in tokens if wanted in {each.token_id, each.caller}]
        if not gone:
            known = sorted({each.caller for each in tokens})
            raise CommandError(
                f'there is no token "{wanted}", nor one of a caller of that name',
                "`fumehood token list` lists what there is.",
                code="NOT_FOUND",
                details={"callers": known},
            )
        tokens[:] = [each for each in tokens if each not in gone]
    if as_json:
        output.print_json({"revoked": [{"id": each.token_id, "caller": each.caller} for each in gone]})
        return
    for each in gone:
        output.say(f"revoked {each.token_id} of {each.caller}")
