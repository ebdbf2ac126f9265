"""Maps exceptions to the `ToolFailure` that the caller reads."""

from __future__ import annotations

from fumehood_sdk.call import MAX_LINE_BYTES, Call
from fumehood_sdk.errors import Cancelled, ReplayDiverged, ToolError
from fumehood_sdk.json_text import dumps
from fumehood_sdk.runtime.missing_module import explain_missing_module
from fumehood_sdk.runtime.reached_limit import reached_limit
from fumehood_sdk.wire.plugin_frames import ERROR, WARNING, Failure, cut_failure_message

MAX_DETAILS_BYTES = 60_000
"""What the sidecar keeps of a failure's details: 64 KiB less what it adds."""


def describe_exception(call: Call, error: BaseException) -> Failure:
    """What the caller reads of an exception that ended a call. Never raises.

    An exception that the author did not mean is logged.
    """
    try:
        if isinstance(error, ToolError):
            return _intended(call, error)
        if isinstance(error, ReplayDiverged):
            return Failure(cut_failure_message(f"the call does not run as it ran before: {error}"), "replay_diverged")
        if call.cancel_reason is not None and type(error).__name__ in ("Cancelled", "CancelledError"):
            return cancelled_failure(call)
        return _unexpected(call, error)
    except Exception:  # noqa: BLE001 - the author's exception class takes part in its description
        return Failure("the tool failed, and so did the description of its failure", "exception")


def cancelled_failure(call: Call) -> Failure:
    """What is said of a call that ended because it was told to."""
    return Failure(f"the call was cancelled ({call.cancel_reason})", "cancelled")


def output_too_large(size_bytes: int, limit_bytes: int) -> Failure:
    """What is said of a call whose result does not fit."""
    return Failure(
        f"the result takes {size_bytes} bytes and {limit_bytes} are allowed: return less, or in parts",
        "output_too_large",
        details_json=b'{"size_bytes":%d,"limit_bytes":%d}' % (size_bytes, limit_bytes),
    )


def _intended(call: Call, error: ToolError) -> Failure:
    details_json = b""
    if error.details is not None:
        try:
            details_json = dumps(dict(error.details))
        except (TypeError, ValueError):
            call.sink.write_log(call, WARNING, "the failure's details can't be written as JSON and were dropped", b"")
        if len(details_json) > MAX_DETAILS_BYTES:
            call.sink.write_log(call, WARNING, f"the failure's details exceed {MAX_DETAILS_BYTES} bytes: dropped", b"")
            details_json = b""
    reason = str(error.reason) or ("transient" if error.retryable else "")
    return Failure(
        cut_failure_message(str(error.message)), reason, retryable=error.retryable, details_json=details_json
    )


def _unexpected(call: Call, error: BaseException) -> Failure:
    explain_missing_module(error)
    name = type(error).__name__
    limit = reached_limit(error)
    try:
        _log(call, error, name)
    except Exception:
        if not limit:
            raise
        # What can't be imported for want of descriptors or memory is no reason to be silent about just that.
    message = f"{_verb(error)} {name}: {_text(error)}".removesuffix(": ")
    if limit:
        return Failure(
            cut_failure_message(message), "resource_exhausted", details_json=dumps({"exception": name, "limit": limit})
        )
    return Failure(cut_failure_message(message), "exception", details_json=dumps({"exception": name}))


def _verb(error: BaseException) -> str:
    return "the tool raised" if isinstance(error, Exception | Cancelled) else "the tool tried to end its process with"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        return "(its text can't be read)"


def _log(call: Call, error: BaseException, name: str) -> None:
    import traceback  # noqa: PLC0415 - a plugin that works never needs it

    try:
        # The last places say where it happened. A recursion's thousands are folded by `traceback` itself.
        told = "".join(traceback.format_exception(error, limit=-20))
    except Exception:  # noqa: BLE001 - formatting calls the author's code
        told = ""
    if len(told) > MAX_LINE_BYTES:
        half = MAX_LINE_BYTES // 2
        told = f"{told[:half]}\n…\n{told[-half:]}"
    told = told.encode("utf-8", "replace").decode()  # JSON has no lone surrogates
    message = f"{call.tool.name} raised {name}: {_text(error)}"
    call.sink.write_log(call, ERROR, message[:MAX_LINE_BYTES], dumps({"traceback": told}))
