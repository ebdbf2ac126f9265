"""`fumehood journal evidence`: writes what proves a call or a run to somebody else."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.complete import call_ids, run_ids
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.journal_file import config_option, open_journal


@click.command(short_help="Write what proves a call or a run to somebody else.")
@click.option("--call", "call_id", metavar="ID", shell_complete=call_ids, help="Of one call.")
@click.option(*("--run", "run_id"), metavar="ID", shell_complete=run_ids, help="Of a run: all calls of one request_id.")
@click.option(
    "--since",
    "earlier",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CHECKPOINT",
    help="Prove as well that the journal only grew since this checkpoint, which somebody was handed.",
)
@click.option(
    "-o", "--output", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE"
)
@config_option
def evidence(
    call_id: str | None, run_id: str | None, earlier: tuple[Path, ...], target: Path, config_path: Path | None
) -> None:
    """Write a page that shows what was recorded, and holds what it takes to check that offline.

    \b
    Whoever gets it needs journal.pub, from you and not from the page, and the distribution
    fumehood-evidence (in a clone: pip install ./evidence):
      python -m fumehood_evidence verify FILE --key journal.pub
    """
    from fumehood_evidence.page import render

    from fumehood_server.cli import output
    from fumehood_server.journal.evidence import EventsPrunedError, NoEvidenceError, NothingRecordedError, make_bundle
    from fumehood_server.journal.keys import JournalKeyError, load_key

    if bool(call_id) == bool(run_id):
        raise click.UsageError("Give --call ID or --run ID.")
    with open_journal(config_path) as journal:
        try:
            bundle = make_bundle(
                journal.reader,
                load_key(journal.folder),
                call_id=call_id or "",
                run_id=run_id or "",
                earlier=[path.read_text(encoding="utf-8") for path in earlier],
            )
        except EventsPrunedError as error:
            raise CommandError(str(error), code="EVENTS_PRUNED", status=ExitStatus.FAILED) from error
        except NothingRecordedError as error:
            todo = "`fumehood journal list` lists calls and their runs. An event is signed a second after it happened."
            raise CommandError(str(error), todo, code="NO_EVIDENCE", status=ExitStatus.FAILED) from error
        except (NoEvidenceError, JournalKeyError) as error:
            raise CommandError(str(error), code="NO_EVIDENCE", status=ExitStatus.FAILED) from error
    target.write_text(render(bundle), encoding="utf-8")
    output.say(f"{target}: {output.plural(len(bundle.events), 'event')}, proven by journal.pub")
