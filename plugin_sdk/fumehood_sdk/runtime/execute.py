"""Runs one synchronous call in the current thread, and makes a failure of whatever it raises."""

from __future__ import annotations

from threading import get_ident

from fumehood_sdk.call import Call
from fumehood_sdk.errors import Cancelled
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.interrupt import retract_interruption
from fumehood_sdk.wire.plugin_frames import Failure, Sent


def execute_call(call: Call) -> Sent | Failure:
    """Run a call. Never raises: whatever the tool raises, exits included, is a failure.

    Until `end_claim` is emptied another thread may raise `Cancelled` here, at any step; afterwards none will.
    """
    call.thread_id = get_ident()
    outcome: Sent | Failure
    try:
        try:
            outcome = call.tool.invoke(call)
        except BaseException as error:  # noqa: BLE001 - the process outlives its calls, SystemExit included
            outcome = failures.describe_exception(call, error)
        call.end_claim.pop()
    except (Cancelled, IndexError):
        retract_interruption(call)
        return failures.cancelled_failure(call)
    return outcome
