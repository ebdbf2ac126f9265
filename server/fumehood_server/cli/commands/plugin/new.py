"""`fumehood plugin new`: writes a plugin from a template."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError


@click.command(short_help="Write a new plugin, ready to run.")
@click.argument("folder", type=click.Path(path_type=Path), metavar="NAME")
@click.option(
    "--kind",
    type=click.Choice(["python", "executable", "cli"]),
    default="python",
    show_default=True,
    help="python: decorated functions, with our SDK. executable: a program that speaks the protocol itself. "
    "cli: a program that is there already.",
)
@click.option(
    "--language",
    type=click.Choice(["python", "node"]),
    default="python",
    show_default=True,
    help="Of kind executable.",
)
def new(folder: Path, kind: str, language: str) -> None:
    """Write a new plugin: a tool that works, its test, a manifest and a README that says how to go on.

    NAME is the folder; its last part is the plugin's name: 1 to 64 of a-z, 0-9, _ and -, starting with a letter.

    \b
    Examples:
      fumehood plugin new greeter
      fumehood plugin new plugins/greeter --kind executable --language node
    """
    from fumehood_server.cli.output import say
    from fumehood_server.cli.scaffold import TEMPLATES, template_names, write_template
    from fumehood_server.plugins.manifest_file import valid_plugin_name

    template = TEMPLATES.get((kind, language))
    if template is None:
        raise CommandError(
            f"kind {kind} has no language to choose", "Leave --language out, or choose --kind executable."
        )
    if not valid_plugin_name(folder.name):
        raise CommandError(
            f'"{folder.name}" is not a plugin\'s name', "1 to 64 of a-z, 0-9, _ and -, starting with a letter."
        )
    words = template_names(folder.name)
    try:
        written = write_template(template, folder, words)
    except FileExistsError as error:
        raise CommandError(f"{folder} is there already", "Choose another name.", code="EXISTS") from error
    except OSError as error:
        raise CommandError(
            f"can't write {error.filename or folder}: {error.strerror}", "Choose another place.", code="NOT_WRITABLE"
        ) from error
    for path in written:
        say(f"  {path}")
    quoted = shlex.quote(str(folder))
    say("\nGo on with:")
    if template == "executable-python":
        say(f"  {words.python} -m pip install --target {quoted}/vendor protobuf")
    if template == "executable-node":
        say(f"  npm install --prefix {quoted}")
    say(f"  fumehood plugin dev {quoted}")
    say(f"\n{folder / 'README.md'} says the rest.")
