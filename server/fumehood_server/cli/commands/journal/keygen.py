"""`fumehood journal keygen`: makes the key that signs the journal, or a new one in its place."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError
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
    from fumehood_server.journal.keys import PUBLIC_NAME, JournalKeyError, load_or_make_key, rotate_key

    folder = load_config(find_config(config_path)).server.state_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        signer = rotate_key(folder) if rotate else load_or_make_key(folder)
    except OSError as error:
        todo = "Make it writable for user {}, or name another one: `state_dir` in [server] of fumehood.toml."
        problem = f"{error.filename or folder}: {error.strerror}"
        raise CommandError(
            problem, todo.format(os.geteuid()), code="NOT_WRITABLE", details={"folder": str(folder)}
        ) from error
    except JournalKeyError as error:
        raise CommandError(str(error), code="KEY_UNREADABLE") from error
    output.say(str(signer.verifier))
    if rotate:
        output.note(f"Hand {folder / PUBLIC_NAME} to whoever verifies the journal: theirs does not hold this key.")
