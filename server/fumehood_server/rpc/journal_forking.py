"""`ForkRun`: records that a run goes on from an event of another."""

from __future__ import annotations

from fumehood.v1 import journal_service_pb2 as pb

from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.journal.forks import NotForkableError, forkable
from fumehood_server.journal.reads import JournalReads
from fumehood_server.model.events import About
from fumehood_server.model.forks import RunForked, new_fork_id
from fumehood_server.model.journal import Journal
from fumehood_server.rpc.journal_requests import invalid

_MAX_ID_BYTES = 256


async def fork_run(
    journal: Journal, reads: JournalReads, request: pb.ForkRunRequest, caller: str
) -> pb.ForkRunResponse:
    """The new run, once it is on disk.

    Raises:
        RefusedError: the request is wrong, the run can't be forked there, or the journal can't be written.
        StoreError: it can't be read.
    """
    source, position = request.request_id, request.from_position
    if not source:
        raise invalid("request_id is required")
    if len(source.encode()) > _MAX_ID_BYTES:
        raise invalid(f"request_id is longer than {_MAX_ID_BYTES} bytes")
    if position < 0:
        raise invalid("positions begin with 0")
    try:
        calls = await forkable(reads, source, position)
    except NotForkableError as exc:
        reason = RefusalReason.RUN_NOT_FORKABLE if exc.found else RefusalReason.RUN_NOT_FOUND
        raise RefusedError(Refusal(reason, f"run {source} can't be forked: {exc}")) from exc
    run_id = new_fork_id()
    event = RunForked(source_run=source, position=position, calls=calls, caller=caller)
    try:
        await journal.commit(event, About(run_id=run_id, context={"request_id": run_id}))
    except JournalUnavailableError as exc:
        text = f"the fork can't be recorded: {exc}"
        raise RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, text)) from exc
    return pb.ForkRunResponse(request_id=run_id, recorded_calls=calls)
