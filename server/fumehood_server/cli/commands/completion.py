"""`fumehood completion`: prints the shell's completion script."""

from __future__ import annotations

import click

from fumehood_server.cli.failure import CommandError

_BASH_END = "    return 0\n}\n"
"""The end of click's function for bash."""


@click.command(short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes the shell complete commands, options, tools and plugins.

    \b
    Examples:
      eval "$(fumehood completion bash)"                              in ~/.bashrc
      eval "$(fumehood completion zsh)"                               in ~/.zshrc
      fumehood completion fish > ~/.config/fish/completions/fumehood.fish
    """
    from click.shell_completion import get_completion_class

    from fumehood_server.cli.output import say

    made = get_completion_class(shell)
    if made is None:
        raise CommandError(f"no completion for {shell}", "There are bash, zsh and fish.")
    script = made(ctx.find_root().command, {}, "fumehood", "_FUMEHOOD_COMPLETE").source()
    if shell == "bash":  # the others put no space after a "=", or take it back
        script = script.replace(_BASH_END, f"    [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace\n{_BASH_END}")
    say(script)
