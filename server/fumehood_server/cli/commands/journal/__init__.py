"""`fumehood journal`: the group of commands about what was recorded."""

from __future__ import annotations

import click

from fumehood_server.cli.lazy_group import LazyGroup

_HERE = "fumehood_server.cli.commands.journal"


@click.group(
    cls=LazyGroup,
    places={
        "list": (f"{_HERE}.list:list_runs", "List the newest calls, or events."),
        "tail": (f"{_HERE}.tail:tail", "Print the newest events; -f goes on with new ones."),
        "show": (f"{_HERE}.show:show", "Draw a run, or a call, on an axis of time."),
        "verify": (f"{_HERE}.verify:verify", "Check every record against what was signed."),
        "evidence": (f"{_HERE}.evidence:evidence", "Write what proves a call or a run to somebody else."),
        "replay": (f"{_HERE}.replay:replay", "Give a run's outcomes again, or verify them."),
        "export": (f"{_HERE}.export:export", "Write events as JSON Lines, or as Parquet."),
        "prune": (f"{_HERE}.prune:prune", "Remove arguments and results from before a day."),
        "keygen": (f"{_HERE}.keygen:keygen", "Make the key that signs the journal, or a new one in its place."),
    },
    short_help="What was recorded: read it, check it, prove it.",
    epilog="They read the journal in the state folder of fumehood.toml, whether or not a sidecar runs. "
    "tail asks the one that runs.",
)
def journal() -> None:
    """Read, check and prove what was recorded of every call.

    \b
      fumehood journal list                       the newest calls
      fumehood journal tail -f                    events as they are written
      fumehood journal show RUN                   what happened in one run, and how long it took
      fumehood journal verify                     is every record what was signed?
      fumehood journal evidence --call ID -o FILE a file that proves one call to somebody else
    """
