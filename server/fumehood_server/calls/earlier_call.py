"""The call that has an id already: what is recorded of it, and its outcome for whoever asks for it again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fumehood_server.calls.call import Call
from fumehood_server.calls.dependencies import CallDependencies
from fumehood_server.calls.errors import NotBegunError, StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.again import check_here, go_on
from fumehood_server.calls.steps.find import find_tool
from fumehood_server.calls.steps.prepare import prepare_arguments
from fumehood_server.calls.steps.recall import check_same, follow, recall, recall_taken, recorded_outcome
from fumehood_server.calls.steps.serve import serve_recorded
from fumehood_server.errors import CallTakenError
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.forks import is_fork_id
from fumehood_server.model.recorded import RecordedCall, RecordedState


async def find_earlier(call: Call, needs: CallDependencies) -> RecordedCall | CallOutcome | None:
    """The call that this one repeats, or what a fork's record has in its place. None: it is new, as far as is known."""
    is_allowed = needs.rights.may_call(call.request.identity, call.request.tool)
    if is_allowed and is_fork_id(call.request.context.request_id):
        prepared_hash = await _prepared_hash(call, needs)
        served = await serve_recorded(call, needs.forks, needs.journal, needs.repeats, prepared_hash)
        if served is not None:
            return served
    return await recall(call, needs.journal, needs.repeats)


async def find_taken(call: Call, needs: CallDependencies, taken: CallTakenError) -> RecordedCall:
    """Another sidecar's call, whose id this one has."""
    with _another_call():
        return await recall_taken(call, needs.journal, needs.repeats, taken)


async def repeat_earlier(
    call: Call, found: RecordedCall, needs: CallDependencies, progress: Progress
) -> CallOutcome | None:
    """The outcome of the call that this one repeats: what it has, or what another sidecar gives it meanwhile.

    Nothing runs, and nothing is recorded anew. None: its sidecar died, and this one goes on in its place.
    """
    request, journal = call.request, needs.journal
    with _another_call():
        prepared_hash = await _prepared_hash(call, needs)
    while found.outcome is None:
        check_same(found, request.arguments_json, prepared_hash)
        if found.state is RecordedState.INTERRUPTED:
            if journal.shared:
                check_here(found, find_tool(needs.tools, request.tool, lambda _: False))
            if await go_on(call, found, progress, journal):
                return None
        if not journal.shared:
            break
        with _another_call():
            later = await follow(call, found, journal, needs.repeats)
        if later is None:
            break
        found = later
    return recorded_outcome(found, request.arguments_json, prepared_hash)


@contextlib.contextmanager
def _another_call() -> Iterator[None]:
    """What goes wrong in the block is told to who asks, and is not the outcome of the call that has the id."""
    try:
        yield
    except StepFailedError as exc:
        raise NotBegunError(exc.error) from exc


async def _prepared_hash(call: Call, needs: CallDependencies) -> str:
    """Of the arguments as a worker would get them now. Empty: none would."""
    tool = needs.tools.find(call.request.tool)
    if tool is None:
        return ""
    prepared = await prepare_arguments(call, tool, needs.checks, hashed=True)
    return "" if isinstance(prepared, CallError) else prepared.canonical_sha256
