"""What the steps share that have a document validated: its verdict, and the error where there is none."""

from __future__ import annotations

import time
from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound, Deadline
from fumehood_server.calls.documents import DOCUMENT_S, Cause, DocumentChecks, NoVerdictError
from fumehood_server.calls.errors import EndedEarlyError, StepFailedError
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.validation.documents import Document, Kind, Verdict
from fumehood_server.validation.process import CPU_S, MEMORY_BYTES


async def validate(
    call: Call, tool: RegisteredTool, document: Document, checks: DocumentChecks, deadline: Deadline
) -> Verdict:
    """The verdict about a document of the call. Waits only where the document is large.

    Raises:
        EndedEarlyError: the call was cancelled or the deadline passed, before there was a verdict.
        StepFailedError: there is none.
    """
    verdict = checks.check_now(document)
    if verdict is not None:
        return verdict
    # Tools too: connections to unix sockets have no names of their own.
    path = (*call.request.identity.turn_path, tool.name)
    try:
        return await call.wait_for(lambda: checks.check(path, document), deadline)
    except NoVerdictError as exc:
        raise StepFailedError(_error(tool, document, exc.cause)) from exc
    except EndedEarlyError as exc:
        if call.cancellation is not None:
            raise
        raise EndedEarlyError(_late(tool, document, deadline), exc.reason) from exc


async def validate_in_time(call: Call, tool: RegisteredTool, checks: DocumentChecks, document: Document) -> Verdict:
    """As `validate`, from now on within the time that the call's tool has.

    Raises:
        EndedEarlyError, StepFailedError: as `validate`.
    """
    deadline = call.deadline(Bound.WAIT, time.monotonic(), max(MIN_WAIT_S, tool.timeout_s))
    return await validate(call, tool, document, checks, deadline)


_WITHIN = {
    Bound.REQUEST: "within {limit_s:g} s, the timeout of the request",
    Bound.CALLER: "before the caller's deadline",
}
_WITHIN_OURS = "within {limit_s:g} s"


def _late(tool: RegisteredTool, document: Document, deadline: Deadline) -> CallError:
    """Of a call that met the deadline while it waited for its verdict. `deadline.error` speaks of workers."""
    error = deadline.error(tool.name)
    within = _WITHIN.get(deadline.bound, _WITHIN_OURS).format(limit_s=deadline.limit_s)
    why = "large documents are validated one by one, and this one's turn came too late or not at all."
    if document.kind is Kind.OUTPUT:
        message = f"{tool.name} has run, but its output was not validated {within}: {why}"
    else:
        message = f"The arguments of {tool.name} were not validated {within}: {why} Try again later."
    return replace(error, message=message, details={**error.details, "phase": "validate", "plugin": tool.plugin})


def _error(tool: RegisteredTool, document: Document, cause: Cause) -> CallError:
    what = f"The {'output' if document.kind is Kind.OUTPUT else 'arguments'} of {tool.name}"
    if cause is Cause.TIME:
        return CallError(
            code=Code.TOOL_RESOURCE_EXHAUSTED,
            message=(
                f"{what} could not be validated within {CPU_S:g} s of the processor, or {DOCUMENT_S:g} s in all. "
                "Less of them, or a schema that looks at each value less often, takes less."
            ),
            details={"limit": "validation_cpu_s", "value": CPU_S, "unit": "s", "plugin": tool.plugin},
        )
    if cause is Cause.MEMORY:
        return CallError(
            code=Code.TOOL_RESOURCE_EXHAUSTED,
            message=f"{what} could not be validated within {MEMORY_BYTES:,} bytes of memory. Make them smaller.",
            details={
                "limit": "validation_memory_bytes",
                "value": MEMORY_BYTES,
                "unit": "bytes",
                "plugin": tool.plugin,
            },
        )
    happened = "could not be started" if cause is Cause.NOT_STARTED else "ended while it worked on them"
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{what} were not validated: the sidecar's process for large documents {happened}. Call again.",
        retryable=True,
        details={"phase": "validate", "plugin": tool.plugin},
    )
