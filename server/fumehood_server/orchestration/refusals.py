"""Why the orchestrator admits no run, or tells of no end."""

from __future__ import annotations

from fumehood_server.calls.places import Shortage
from fumehood_server.errors import CallTakenError, JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.orchestration.run_handle import RunHandle


def not_recorded(error: JournalUnavailableError) -> RefusedError:
    """Why a run whose state can't be recorded is not answered."""
    if isinstance(error, CallTakenError):
        text = (
            "another sidecar of this journal carries the run out: ask that one, or again here later. Once the run has "
            "ended it is answered from the record, and once that sidecar is dead it goes on here"
        )
        return RefusedError(Refusal(RefusalReason.RUN_ELSEWHERE, text))
    text = f"the run can't be recorded: {error}. Send it again: it goes on from what is on record"
    return RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, text))


def left_off(handle: RunHandle, why: str) -> RefusedError:
    """What is told of a run that has no end on record, since the sidecar leaves or somebody has stopped it."""
    if not handle.is_stopped:
        return RefusedError(Refusal(RefusalReason.DRAINING, why))
    text = f"{handle.why_ended}: send the request again, with the same request_id, and the run goes on"
    return RefusedError(Refusal(RefusalReason.RUN_SUSPENDED, text))


def id_in_use(request_id: str) -> RefusedError:
    """Of a `request_id` that another request has."""
    text = f'the request_id "{request_id}" is that of another request: choose another, with something random in it'
    return RefusedError(Refusal(RefusalReason.RUN_ID_IN_USE, text))


def too_many_runs(shortage: Shortage, total: int) -> Refusal:
    """Of a caller that has as many runs as it may."""
    text = (
        f"{shortage.held} runs of this caller are under way, and while {shortage.free} of {total} places are free "
        f"it may have {shortage.bound} ([orchestration] max_runs): back off and try again"
    )
    return Refusal(RefusalReason.TOO_MANY_RUNS, text)


def not_resumable(request_id: str, why: str) -> RefusedError:
    """Of a run that is on record and can't go on."""
    return RefusedError(Refusal(RefusalReason.RUN_NOT_RESUMABLE, f'the run "{request_id}" {why}'))
