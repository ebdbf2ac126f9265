"""The step that has a call wait for the journal, and refuses one that could not be recorded."""

from __future__ import annotations

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound
from fumehood_server.model.call import CallError
from fumehood_server.model.journal import Journal
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import safe_to_repeat


async def await_journal(call: Call, tool: RegisteredTool, journal: Journal, *, required: bool) -> CallError | None:
    """Wait for the journal where calls are faster than its disk, and say why the call ends here where it can't record.

    That is where it can't be written, and the tool has effects or the operator wants every call told.

    Raises:
        EndedEarlyError: the call was cancelled or met a deadline before.
    """
    size = len(call.request.arguments_json)
    if not journal.has_room(size):
        deadline = call.deadline(Bound.WAIT, call.ready_at, max(MIN_WAIT_S, tool.timeout_s))
        await call.wait_for(lambda: journal.room(size), deadline)
    problem = journal.problem
    if problem is None or (not required and safe_to_repeat(tool.definition.side_effects)):
        return None
    return not_run(tool.name, f"the journal can't be written: {problem}")


def not_run(tool: str, why: str) -> CallError:
    """Nothing was sent to a worker, since the journal can't be used."""
    return CallError(
        code=Code.CONFIG_JOURNAL_UNAVAILABLE,
        message=f"{tool[:64]} was not run: {why}",
        retryable=True,
        details={"reason": "journal_unavailable"},
    )
