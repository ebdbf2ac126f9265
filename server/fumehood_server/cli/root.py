"""Root command `fumehood`, and the mapping of exceptions to exit statuses."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from fumehood_server.cli.failure import CommandError, ExitStatus, config_failure
from fumehood_server.cli.lazy_group import LazyGroup, OutputClosedError
from fumehood_server.errors import ConfigError

_COMMANDS = "fumehood_server.cli.commands"

WORKFLOW = """\
Fumehood runs tools for your service, each in a sandboxed process of its own.

\b
  fumehood doctor                          what this machine can enforce, and how to get the rest
  fumehood plugin new greeter              write a plugin
  fumehood plugin dev greeter              serve it while you work on it; reloads on save
  fumehood plugin add greeter              look at what it asks for, and pin it
  fumehood serve                           start the sidecar
  fumehood tools                           what can be called now
  fumehood call greeter_hello names=Ada
  fumehood run "Greet Ada."                let a model call them: see [[engine]] in docs/configuration.md

\b
  fumehood mcp import .vscode/mcp.json     sandbox the MCP servers that another program is configured with
  fumehood mcp wrap -- uvx SERVER          one MCP server in a sandbox, for a line of an mcp.json
  fumehood mcp                             all tools, for an MCP client: docs/mcp-server.md
"""

STATUSES = "Exit status: 0 done; 1 the tool failed; 2 the call was wrong; 3 the sidecar can't be reached."


@click.group(
    cls=LazyGroup,
    places={
        "serve": (f"{_COMMANDS}.serve:serve", "Start the sidecar."),
        "doctor": (f"{_COMMANDS}.doctor:doctor", "What this machine can enforce, and how to get the rest."),
        "reload": (f"{_COMMANDS}.reload:reload", "Have the sidecar take up fumehood.toml."),
        "tools": (f"{_COMMANDS}.tools:tools", "List tools, or show one with its parameters."),
        "call": (f"{_COMMANDS}.call:call", "Call a tool."),
        "answer": (f"{_COMMANDS}.answer:answer", "Answer what a call's tool asks."),
        "run": (f"{_COMMANDS}.run:run", "Run a model with your tools."),
        "mcp": (f"{_COMMANDS}.mcp:mcp", "MCP: take servers over, wrap one, serve the tools to a client."),
        "approvals": (f"{_COMMANDS}.approvals:approvals", "Approve and deny calls that wait for it."),
        "hooks": (f"{_COMMANDS}.hooks:hooks", "Who is asked before and after calls."),
        "policy": (f"{_COMMANDS}.policy:policy", "Try the permission rules of fumehood.toml."),
        "token": (f"{_COMMANDS}.token:token", "Give callers tokens, list them, take them back."),
        "journal": (f"{_COMMANDS}.journal:journal", "What was recorded: read it, check it, prove it."),
        "plugin": (f"{_COMMANDS}.plugin:plugin", "Write, check, pin and watch plugins."),
        "completion": (f"{_COMMANDS}.completion:completion", "Completion for bash, zsh or fish."),
    },
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=STATUSES + " Each command has its own --help with examples.",
    help=WORKFLOW,
)
@click.version_option(package_name="fumehood-server", prog_name="fumehood")
@click.pass_context
def fumehood(ctx: click.Context) -> None:
    """Show the workflow when no command is named."""
    if ctx.invoked_subcommand is None:
        _show_help(ctx)


def main() -> None:
    """Run the command line and exit with its status."""
    # gRPC's core logs socket errors to stderr, which our errors report already.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        result = _run()
        status = result if isinstance(result, int) else ExitStatus.OK
        sys.stdout.flush()
    except CommandError as error:
        status = _report(error)
    except ConfigError as error:
        status = _report(config_failure(error))
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "fumehood"
        status = _report(CommandError(error.format_message(), f"See {path} --help."))
    except click.ClickException as error:
        status = _report(CommandError(error.format_message()))
    except (KeyboardInterrupt, click.Abort):
        from fumehood_server.cli.output import note

        note("interrupted")
        status = ExitStatus.INTERRUPTED
    except (OutputClosedError, BrokenPipeError):
        # Python flushes stdout at exit, which would fail again: point it to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = ExitStatus.OK
    except OSError as error:
        status = _report(_system_failure(error))
    sys.exit(int(status))


def _show_help(ctx: click.Context) -> None:
    click.echo(ctx.get_help())


def _run() -> object:
    """Run the command. A group without one shows its help, as `fumehood` itself does; for click that is an error."""
    try:
        return fumehood.main(prog_name="fumehood", standalone_mode=False)
    except _HELP_WANTED as asked:
        _show_help(asked.ctx)
        return ExitStatus.OK


_HELP_WANTED: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Before 8.2 click printed the help itself."""


def _system_failure(error: OSError) -> CommandError:
    """What the system refused and no command has better words for: a folder, a file, a full disk."""
    what = error.strerror or str(error)
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    todo = {
        errno.EACCES: "Run it as a user who may, or choose another place.",
        errno.EPERM: "Run it as a user who may, or choose another place.",
        errno.EROFS: "Choose a place that can be written.",
        errno.ENOENT: "Make the folder, or choose another place.",
        errno.ENOSPC: "Make room on the disk.",
        errno.EMFILE: "Allow more open files: ulimit -n.",
    }.get(error.errno or 0, "")
    return CommandError(
        f"{where}{what}",
        todo,
        code="SYSTEM_ERROR",
        status=ExitStatus.FAILED,
        details={"errno": error.errno, "path": where.removesuffix(": ")},
    )


def _report(error: CommandError) -> ExitStatus:
    """Print an error on stderr: two lines, or an object when the command was asked for JSON."""
    from fumehood_server.cli.output import Part, hanging, note, print_json_error, say

    options = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--json" in options:
        print_json_error(error.to_json())
        return error.status
    say(Part("error: ", fg="red", bold=True), hanging(error.what), err=True)
    if error.todo:
        note(hanging(error.todo))
    return error.status
