"""`fumehood journal keygen`: makes the key that signs the journal, or a new one in its place."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.journal_file import config_option


@click.command(short_help="Make the key that signs the journal, or a new one in its place.")
@click.option("--rotate", is_flag=True, help="Put a new key in the old one's place. Takes effect at the next start.")
@config_option
def keygen(rotate: bool, config_path: Path | None) -> None:
    """Make journal.key and journal.pub in the state folder, and print the public key. The first start does so, too.

    What an old key has signed stays proven: journal.pub keeps every public key, the newest last.
    """
    from fumehood_server.cli import output
    from fumehood_server.config import find_config, load_config
    from fumehood_server.journal.keys import JournalKeyError, load_or_make_key, rotate_key

    folder = load_config(find_config(config_path)).server.state_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        signer = rotate_key(folder) if rotate else load_or_make_key(folder)
    except JournalKeyError as error:
        raise CommandError(str(error), code="KEY_UNREADABLE", status=ExitStatus.FAILED) from error
    output.say(str(signer.verifier))
