"""`fumehood token add`: makes a token for a caller."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.journal_file import config_option


@click.command(short_help="Make a token for a caller, and print it once.")
@click.argument("name")
@click.option("--expires", metavar="AGE", help="When it ends, such as 30d, 12h or 90m.  [default: never]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def add(name: str, expires: str | None, as_json: bool, config_path: Path | None) -> None:
    """Make a token for the caller NAME of fumehood.toml, and print it.

    It is shown once: the file holds its hash alone. A caller may have several, so that one can be replaced while the
    other still holds.

    \b
    Examples:
      fumehood token add agent --expires 30d
      fumehood token add agent --json | jq -r .token
    """
    from fumehood_server.callers.token_file import changing, make_token
    from fumehood_server.cli import output
    from fumehood_server.cli.ages import age_s
    from fumehood_server.cli.token_lines import find_tokens, time_text, token_failures

    lifetime_s = None if expires is None else age_s(expires)
    config, path = find_tokens(config_path)
    names = [each.name for each in config.callers]
    if name not in names:
        where = config.path or Path("fumehood.toml")
        raise CommandError(
            f'{where} names no caller "{name}", so that its token would be refused',
            f'Write [[caller]] with name = "{name}" and tools = ["…"] there first, and run `fumehood reload`.',
            code="NOT_FOUND",
            details={"callers": names},
        )
    with token_failures(), changing(path) as tokens:
        text, token = make_token(name, lifetime_s, tokens)
        tokens.append(token)
    if as_json:
        output.print_json(
            {"token": text, "id": token.token_id, "caller": name, "expires": time_text(token.expires) or None}
        )
        return
    until = f"until {time_text(token.expires)}" if token.expires is not None else "until it is revoked"
    output.note(f'Token {token.token_id} of caller "{name}" holds {until}. It is shown this once.')
    output.say(text)
