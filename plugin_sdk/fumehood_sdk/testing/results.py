"""What a test sees of a call: its result, updates and log lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fumehood_sdk.content import Blob, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUpdate:
    """An update that the tool sent by `ctx.update()`."""

    message: str
    progress: float | None
    total: float | None
    data: Any
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLog:
    """A line that `ctx.log` wrote; `level` is "debug", "info", "warning" or "error"."""

    level: str
    message: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call failed, as the caller reads it."""

    message: str
    reason: str
    retryable: bool
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """How a call ended."""

    details: Any
    """The structured output, read back from JSON. None where there is none."""
    content: tuple[Text | Blob, ...]
    """What is shown; the details as text where the tool gave no content."""
    terminate: bool
    updates: tuple[CallUpdate, ...]
    logs: tuple[CallLog, ...]
    error: CallError | None
    """None: the call did not fail."""
