"""Cuts failures of calls for whoever watches a run or reads its response: what is recorded of the call is whole."""

from __future__ import annotations

from typing import Any

import orjson

from fumehood_server.model.call import CallError

MAX_MESSAGE_BYTES = 4 * 1024
MAX_DETAILS_BYTES = 4 * 1024
"""Of a failure and its causes together, as JSON. A tool gives 64 KiB to each."""
MAX_OWN_DETAILS_BYTES = 64 * 1024
"""Of what a run itself ended with, which nobody else has."""
MAX_CAUSES = 8
_NAMED = ("reason", "violation", "limit", "value", "usage", "unit", "budget", "quota", "outcome_unknown")
"""What programs switch on."""
_MAX_NAMED_BYTES = 256
_CUT = "…"
_VALUE_WEIGHT = 32
"""About what a value takes in memory beside its JSON."""


def cut_error(error: CallError, most_bytes: int = MAX_DETAILS_BYTES) -> CallError:
    """The failure: its code, the beginning of its message, and its details where they fit.

    Of details that don't, those stay that programs switch on, and `truncated` says that there are others.
    """
    return _cut(error, most_bytes, MAX_DETAILS_BYTES, 0)


def cut_own_error(error: CallError) -> CallError:
    """The same of what a run ended with: its own details may be as long as an error's may be, its causes' may not."""
    return _cut(error, MAX_OWN_DETAILS_BYTES, MAX_DETAILS_BYTES, 0)


def cut_text(text: str, most_bytes: int) -> str:
    """As much of a text as has so many bytes in UTF-8."""
    data = text[:most_bytes].encode(errors="replace")
    return text if len(data) == len(text) <= most_bytes else data[:most_bytes].decode(errors="ignore")


def weight(error: CallError | None) -> int:
    """About how many bytes an error takes that was cut, for bounds of many together."""
    if error is None:
        return 0
    details = _json(error.details) if error.details else b""
    values = details.count(b",") + details.count(b"[") + details.count(b"{")
    own = len(error.message.encode(errors="replace")) + len(details) + values * _VALUE_WEIGHT
    return own + weight(error.caused_by)


def _cut(error: CallError, most_bytes: int, most_of_causes: int, depth: int) -> CallError:
    details, left = error.details, min(most_bytes, most_of_causes)
    if details:
        data = _json(details)
        if not 0 < len(data) <= most_bytes:
            details = _named(error)
            data = _json(details)
        left = min(most_of_causes, max(most_bytes - len(data), 0))
    cause = error.caused_by
    if cause is not None:
        cause = None if depth >= MAX_CAUSES else _cut(cause, left, left, depth + 1)
    return CallError(
        code=error.code,
        message=_message(error.message, MAX_MESSAGE_BYTES if depth == 0 else _MAX_NAMED_BYTES),
        retryable=error.retryable,
        details=details,
        caused_by=cause,
    )


def _message(text: str, most_bytes: int) -> str:
    shown = cut_text(text, most_bytes)
    return shown if len(shown) == len(text) else f"{cut_text(shown, most_bytes - len(_CUT.encode()))}{_CUT}"


def _named(error: CallError) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in _NAMED:
        value = error.details.get(name)
        if isinstance(value, str):
            kept[name] = cut_text(value, _MAX_NAMED_BYTES)
        elif isinstance(value, int | float) and _json(value):
            kept[name] = value
    return {**kept, "truncated": True}


def _json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Its JSON. Empty: it has none, or is nested too deeply to be written within a response."""
    try:
        return orjson.dumps([[[[[[[[value]]]]]]]])[8:-8]
    except TypeError:
        return b""
