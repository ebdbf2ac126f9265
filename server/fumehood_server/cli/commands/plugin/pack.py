"""`fumehood plugin pack`: writes a plugin into one file, the same bytes on every machine."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError


@click.command(short_help="Write a plugin into one file, for `plugin add` elsewhere.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it there.  [default: NAME-VERSION.zip here]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pack(folder: Path, output: Path | None, as_json: bool) -> None:
    """Write what is pinned of the plugin in FOLDER, less what is ignored, into a zip archive. Nothing of it is run.

    The same files give the same archive on each machine: no times, no owners, no compression. Its digest is what
    fumehood.lock pins for the folder, and for what `fumehood plugin add FILE` unpacks.

    \b
    Examples:
      fumehood plugin pack plugins/dice
      fumehood plugin pack plugins/dice -o dist/dice.zip --json | jq -r .digest
    """
    from fumehood_server.cli import output as terminal
    from fumehood_server.plugins.packages.packing import pack as pack_plugin

    try:
        packed = pack_plugin(folder, output)
    except OSError as error:
        raise CommandError(
            f"can't write {error.filename or output or 'the file'}: {error.strerror}",
            "Choose another place with -o.",
            code="NOT_WRITABLE",
        ) from error
    if as_json:
        terminal.print_json(
            {
                "name": packed.name,
                "version": packed.version,
                "digest": packed.digest,
                "path": str(packed.path),
                "file_digest": packed.file_digest,
                "size_bytes": packed.size_bytes,
            }
        )
        return
    terminal.say(f"{packed.name} {packed.version} in {packed.path}, {packed.size_bytes:,} bytes")
    terminal.say(f"  {packed.digest}")
    terminal.say(f"  of the file: {packed.file_digest}")
