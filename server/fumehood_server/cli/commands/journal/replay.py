"""`fumehood journal replay`: serves a run from its record, or runs its code again where it can have no effects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import run_or_call_ids
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.journal_file import config_option, open_journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood_server.journal.store import Reader
    from fumehood_server.orchestration.replaying import ReplayedRun
    from fumehood_server.replay.record import ReplayableCall
    from fumehood_server.replay.rerun import Rerun

_Value = TypeVar("_Value")
_ROWS = 256
"""Of one table: a run may have more calls than should be in memory at once."""


@click.command(short_help="Give a run's outcomes again, or verify them.")
@click.argument("run", metavar="RUN|CALL", shell_complete=run_or_call_ids)
@click.option("--verify", is_flag=True, help="Run the tools' code again, where it can have no effects, and compare.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, each call on a line of its own.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the calls as JSON Lines, for tests of their plugin.",
)
@click.option(
    "--from",
    "position",
    type=click.IntRange(0),
    metavar="EVENT",
    help="Begin a new run that goes on live from this event, a position that show --json has.",
)
@address_option
@config_option
def replay(
    run: str,
    verify: bool,
    as_json: bool,
    file: Path | None,
    position: int | None,
    address: str | None,
    config_path: Path | None,
) -> None:
    """Give the recorded outcome of each call of a run (a request_id or a session_id), or of one call. Nothing runs.

    A run of a model is carried out again from its answers on record and the outcomes of its calls: no engine is asked.

    With --verify each tool's own code runs again in the sandbox of level none, without grants, secrets and network.
    What it took from outside by ctx.now(), ctx.side_effect(), ctx.http and ctx.secret() comes from the record, and what
    it returns is compared with what was recorded, byte for byte. Ends with 1 if a call diverges or can't be verified.

    With -o the calls are written to a file, which fumehood_sdk.testing.replay runs in the tests of their plugin: with
    their arguments, what they took from outside, and what they returned.

    With --from the sidecar that serves begins a new run, whose id is printed. Calls of that run (`fumehood call --run`,
    or context.request_id) are answered from the record where they are calls of RUN that began up to the event, each
    once, and nothing of them runs; what comes after them runs live. A call that is none of them is refused.

    \b
    Examples:
      fumehood journal replay r-42
      fumehood journal replay r-42 --verify
      fumehood journal replay r-42 -o tests/r-42.jsonl
      fumehood journal replay r-42 --from 1734
    """
    if position is not None:
        if verify or file is not None:
            raise click.UsageError("--from begins a new run: it goes with neither --verify nor -o.")
        _fork(run, position, address, as_json=as_json)
        return
    from fumehood_server.replay.record import read_run

    with open_journal(config_path) as journal:
        calls = read_run(journal.reader, run)
        first, of_model = next(calls, None), _carry_out_again(journal.reader, run)
        if first is None and of_model is None:
            raise CommandError(f"no run and no call {run} is recorded", "See fumehood journal list.", code="NOT_FOUND")
        calls = chain([] if first is None else [first], calls)
        if file is not None:
            from fumehood_server.replay.file import replay_lines

            with file.open("wb") as lines:
                lines.writelines(replay_lines(calls))
        elif verify:
            _verify(calls, config_path, as_json=as_json)
        else:
            _print_outcomes(calls, as_json=as_json)
    if of_model is not None and file is None:
        _print_run(run, of_model, as_json=as_json)


def _carry_out_again(reader: Reader, run: str) -> ReplayedRun | None:
    """What comes of a model's run from its record alone. None: there is none of this id."""
    import asyncio

    from fumehood_server.calls.documents import DocumentChecks
    from fumehood_server.orchestration.replaying import replay_run
    from fumehood_server.telemetry import get_logger

    async def replay() -> ReplayedRun | None:
        async with DocumentChecks(get_logger()) as checks:
            return await replay_run(_Reads(reader), checks, run)

    return asyncio.run(replay())


class _Reads:
    """The reads of a journal that nobody else waits for."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def run(self, read: Callable[[Reader], _Value]) -> _Value:
        return read(self._reader)


def _print_run(run: str, found: ReplayedRun, *, as_json: bool) -> None:
    from fumehood_server.cli import output

    verdict = "not run" if found.not_run else "diverged" if found.differs else "verified"
    if as_json:
        fields = {"run_id": run, "verdict": verdict.replace(" ", "_"), "why": found.not_run or found.differs}
        output.print_json(fields, compact=True)
    elif not found.differs:
        why = f": {found.not_run}" if found.not_run else ": its answers and outcomes lead to its response again"
        output.note(f"the run itself: {verdict}{why}")
    if found.differs:
        raise CommandError(
            f"the run diverges from its record: {found.differs}", code="REPLAY_DIVERGED", status=ExitStatus.FAILED
        )


def _fork(run: str, position: int, address: str | None, *, as_json: bool) -> None:
    from fumehood_server.cli import output
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        begun = client.fork_run(run, position)
    if as_json:
        output.print_json(
            {
                "run_id": begun.request_id,
                "source_run": run,
                "from_position": position,
                "recorded_calls": begun.recorded_calls,
            }
        )
        return
    output.say(begun.request_id)
    count = output.plural(begun.recorded_calls, "call")
    output.note(f"{count} of {run} will be answered from the record; then calls with this run id run live")


def _verify(calls: Iterator[ReplayableCall], config_path: Path | None, *, as_json: bool) -> None:
    import asyncio

    from fumehood_server.config import find_config, load_config
    from fumehood_server.replay.rerun import Verdict, rerun_calls

    verdicts: Counter[Verdict] = Counter()
    shown: list[Rerun] = []

    async def read() -> AsyncIterator[ReplayableCall]:
        while (call := await asyncio.to_thread(next, calls, None)) is not None:
            yield call

    async def tell(rerun: Rerun) -> None:
        verdicts[rerun.verdict] += 1
        shown.append(rerun)
        if as_json or len(shown) >= _ROWS:
            _print_reruns(shown, as_json=as_json)
            shown.clear()

    asyncio.run(rerun_calls(load_config(find_config(config_path)), read(), tell))
    _print_reruns(shown, as_json=as_json)
    diverged, not_run = verdicts[Verdict.DIVERGED], verdicts[Verdict.NOT_RUN]
    if diverged or not_run:
        raise CommandError(
            f"{diverged} of {verdicts.total()} calls diverge, {not_run} can't be run again",
            code="REPLAY_DIVERGED" if diverged else "REPLAY_INCOMPLETE",
            status=ExitStatus.FAILED,
        )


def _print_outcomes(calls: Iterator[ReplayableCall], *, as_json: bool) -> None:
    from fumehood_server.cli import output

    if as_json:
        for call in calls:
            output.print_json(_fields(call), compact=True)
        return
    row: ReplayableCall | None = next(calls, None)
    while row is not None:
        table = output.table("CALL", "TOOL", "OUTCOME", "VALUES")
        while row is not None and table.row_count < _ROWS:  # a call at a time: each may hold megabytes
            count = "not kept" if row.values is None else str(len(row.values.values))
            table.add_row(*[output.styled(each) for each in (row.call_id, row.tool, _how(row), count)])
            row = next(calls, None)
        output.show_rows(output.console(), table)


def _print_reruns(reruns: list[Rerun], *, as_json: bool) -> None:
    from fumehood_server.cli import output

    if as_json:
        for each in reruns:
            found = each.divergence
            output.print_json(
                {
                    "call_id": each.call_id,
                    "tool": each.tool,
                    "verdict": each.verdict.value,
                    "why": each.why,
                    "divergence": None if found is None else found._asdict(),
                },
                compact=True,
            )
        return
    if not reruns:
        return
    table = output.table("CALL", "TOOL", "VERDICT", "WHY")
    for each in reruns:
        why = each.why if each.divergence is None else f"{each.divergence.kind}: {each.divergence.message}"
        table.add_row(
            output.styled(each.call_id),
            output.styled(each.tool),
            output.styled(each.verdict.value.replace("_", " ")),
            output.styled(why),
        )
    output.show_rows(output.console(), table)
    for each in reruns:
        if each.divergence is not None and each.divergence.diff:
            output.say("")
            output.say(f"{each.tool} {each.call_id}")
            for line in each.divergence.diff.splitlines():
                output.say(line)


def _fields(call: ReplayableCall) -> dict[str, Any]:
    return {
        "call_id": call.call_id,
        "tool": call.tool,
        "kept": call.result is not None,
        "outcome": None if call.result is None else json.loads(call.result),
    }


def _how(call: ReplayableCall) -> str:
    if call.outcome is None:
        return "none yet"
    error = call.outcome.error
    return "OK" if error is None else f"{error.code.value}: {error.message}"
