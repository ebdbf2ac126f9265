"""Runs one synchronous call in this thread."""

from __future__ import annotations

from threading import get_ident

from fumehood_sdk.call import Call
from fumehood_sdk.errors import Cancelled
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.interrupt import settle
from fumehood_sdk.wire import plugin as wire


def execute(call: Call) -> bytes:
    """Run a call and encode its result. Never raises: whatever the tool raises, exits included, is a result.

    Until `unended` is emptied another thread may raise `Cancelled` here, at any step; afterwards none will.
    """
    call.thread_id = get_ident()
    try:
        try:
            content, details_json, terminate = call.tool.invoke(call)
            body = wire.result(call.invocation_id, content, details_json, terminate=terminate)
        except BaseException as error:  # noqa: BLE001 - the process outlives its calls, SystemExit included
            body = failures.encode_safely(call, error)
        call.unended.pop()
    except (Cancelled, IndexError):
        settle(call)
        return failures.cancelled(call)
    return body
