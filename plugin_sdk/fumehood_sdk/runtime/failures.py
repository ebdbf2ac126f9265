"""From an exception to the failure that the caller reads."""

from __future__ import annotations

from fumehood_sdk.call import Call
from fumehood_sdk.context import MAX_LINE_BYTES
from fumehood_sdk.errors import Cancelled, ToolError
from fumehood_sdk.jsontext import dumps
from fumehood_sdk.wire import plugin as wire

MAX_MESSAGE_CHARACTERS = 4096
"""What fumehood/v1/plugin.proto keeps of a failure's message."""
MAX_DETAILS_BYTES = 60_000
"""What the sidecar keeps of a failure's details: 64 KiB less what it adds."""


def encode(call: Call, error: BaseException) -> bytes:
    """Encode the result of a call that ended with an exception. One that the author did not mean is logged."""
    if isinstance(error, ToolError):
        return _meant(call, error)
    if call.cancel_reason is not None and type(error).__name__ in ("Cancelled", "CancelledError"):
        return cancelled(call)
    name = type(error).__name__
    _log(call, error, name)
    return wire.failure(
        call.invocation_id,
        _cut(f"{_verb(error)} {name}: {_text(error)}".removesuffix(": ")),
        retryable=False,
        reason="exception",
        details_json=dumps({"exception": name}),
    )


def encode_safely(call: Call, error: BaseException) -> bytes:
    """`encode`, or less where the author's exception can't be described."""
    try:
        return encode(call, error)
    except Exception:  # noqa: BLE001 - the author's exception class takes part in its description
        message = "the tool failed, and so did the description of its failure"
        return refused(call.invocation_id, message, "exception", retryable=False)


def cancelled(call: Call) -> bytes:
    """Encode the result of a call that ended because it was told to."""
    return wire.failure(
        call.invocation_id,
        f"the call was cancelled ({call.cancel_reason})",
        retryable=False,
        reason="cancelled",
        details_json=b"",
    )


def refused(invocation_id: int, message: str, reason: str, *, retryable: bool) -> bytes:
    """Encode the result of a call that was never started."""
    return wire.failure(invocation_id, message, retryable=retryable, reason=reason, details_json=b"")


def _meant(call: Call, error: ToolError) -> bytes:
    details_json = b""
    if error.details is not None:
        try:
            details_json = dumps(dict(error.details))
        except (TypeError, ValueError):
            call.sink.log(call, wire.WARNING, "the failure's details can't be written as JSON and were dropped", b"")
        if len(details_json) > MAX_DETAILS_BYTES:
            call.sink.log(call, wire.WARNING, f"the failure's details exceed {MAX_DETAILS_BYTES} bytes: dropped", b"")
            details_json = b""
    return wire.failure(
        call.invocation_id,
        _cut(str(error.message)),
        retryable=error.retryable,
        reason=str(error.reason) or ("transient" if error.retryable else ""),
        details_json=details_json,
    )


def _verb(error: BaseException) -> str:
    return "the tool raised" if isinstance(error, Exception | Cancelled) else "the tool tried to end its process with"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        return "(its text can't be read)"


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else message[: MAX_MESSAGE_CHARACTERS - 1] + "…"


def _log(call: Call, error: BaseException, name: str) -> None:
    import traceback  # noqa: PLC0415 - a plugin that works never needs it

    try:
        # The last lines say where it happened. A recursion's thousands are folded by `traceback` itself.
        told = "".join(traceback.format_exception(error, limit=-20))[-MAX_LINE_BYTES:]
    except Exception:  # noqa: BLE001 - formatting calls the author's code
        told = ""
    message = f"{call.tool.name} raised {name}: {_text(error)}"
    call.sink.log(call, wire.ERROR, message[:MAX_LINE_BYTES], dumps({"traceback": told}))
