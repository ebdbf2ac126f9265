"""`fumehood journal verify`: checks every record against what was signed."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.journal_file import config_option, open_journal


@click.command(short_help="Check every record against what was signed.")
@click.option("--key", "key_path", type=click.Path(path_type=Path), metavar="PUB", help="Default: journal.pub.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def verify(key_path: Path | None, as_json: bool, config_path: Path | None) -> int:
    """Read the whole journal, and name the first record that is not what was signed. Exit status 1: there is one.

    Who can write the state folder could write both records and key anew. So keep journal.pub, and checkpoints, where
    the sidecar's machine can't change them, and give that key by --key.
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from fumehood_server.cli import output
    from fumehood_server.cli.progress import counting
    from fumehood_server.journal.keys import JournalKeyError, public_keys, read_public_keys
    from fumehood_server.journal.verify import verify as verify_journal

    with open_journal(config_path) as journal:
        try:
            keys = public_keys(journal.folder) if key_path is None else read_public_keys(key_path)
        except JournalKeyError as error:
            raise CommandError(str(error), code="KEY_UNREADABLE", status=ExitStatus.FAILED) from error
        with journal.reader.snapshot(), counting("events", shown=not as_json) as progress:
            found = verify_journal(journal.reader, keys, progress=progress)
    if as_json:
        output.print_json({**asdict(found), "verified": found.fault is None})
    elif found.fault is None:
        output.say(
            f"{output.plural(found.events, 'event')}: all as written. {found.signed:,} of them are signed for; "
            f"{found.payloads:,} arguments and results are here"
            + (f", {found.removed:,} were removed by retention." if found.removed else ".")
        )
        if found.removed_events:
            until = datetime.fromtimestamp(found.removed_until_us / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
            output.say(
                f"Of {output.plural(found.removed_events, 'event')} before event {found.removed_up_to:,} ({until}) "
                "only the hashes are left: retention has removed them."
            )
    elif found.fault.position < 0:
        output.say(output.Part("not verified: ", fg="red", bold=True), found.fault.problem)
    else:
        output.say(
            output.Part("not verified: ", fg="red", bold=True), f"event {found.fault.position} {found.fault.problem}"
        )
    return ExitStatus.OK if found.fault is None else ExitStatus.FAILED
