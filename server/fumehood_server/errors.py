"""The sidecar's exceptions, named by who must act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from fumehood_server.model.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from fumehood_server.model.call import CallError


class FumehoodError(Exception):
    """Root of this package's exceptions."""


class ConfigError(FumehoodError):
    """The operator's configuration is wrong. The operator must mend `path` at `line`.

    The message is printable whatever the path holds. `line` counts from 1 and is 0 when it isn't known; `key` is the
    dotted key at fault (may be empty).
    """

    def __init__(self, path: Path, problem: str, *, line: int = 0, key: str = "", hint: str = "") -> None:
        """Keep the place, the problem and the remedy."""
        where = f"{printable(path)}:{line}" if line else printable(path)
        super().__init__(f"{where}: {problem}" + (f" ({hint})" if hint else ""))
        self.path = path
        self.problem = problem
        self.line = line
        self.key = key
        self.hint = hint


class PluginInvalidError(ConfigError):
    """A plugin's manifest or definitions are wrong. Its author must mend it."""


class WorkerUnavailableError(FumehoodError):
    """No worker can be had for a call. `error` is what the call ends with."""

    def __init__(self, error: CallError) -> None:
        """Keep the call's error."""
        super().__init__(error.message)
        self.error = error


class PluginRequestError(FumehoodError):
    """A request of a call to the sidecar is refused or failed. The plugin gets `reason`, which is stable."""

    def __init__(self, reason: str, message: str, *, retryable: bool = False) -> None:
        """`message` is one printable sentence."""
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable


class JournalUnavailableError(FumehoodError):
    """An event could not be put on disk in time. What waits for it must not happen."""


class CallTakenError(JournalUnavailableError):
    """An event was not recorded since another sidecar has the call, or has settled it. What waits must not happen."""


class RefusalReason(StrEnum):
    """Why a request was refused before anything ran. Stable: the `reason` of a status's `google.rpc.ErrorInfo`.

    `fumehood_server.rpc.status` gives each its gRPC code.
    """

    UNAUTHENTICATED = "UNAUTHENTICATED"
    CALLER_DENIED = "CALLER_DENIED"
    REQUEST_INVALID = "REQUEST_INVALID"
    PAGE_TOKEN_INVALID = "PAGE_TOKEN_INVALID"  # noqa: S105 - a reason's name
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    PLUGIN_NOT_FOUND = "PLUGIN_NOT_FOUND"
    CALL_NOT_FOUND = "CALL_NOT_FOUND"
    QUESTION_NOT_FOUND = "QUESTION_NOT_FOUND"
    CALL_ID_IN_USE = "CALL_ID_IN_USE"
    RETRY_REFUSED = "RETRY_REFUSED"
    OUTCOME_KNOWN = "OUTCOME_KNOWN"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    RUN_NOT_FORKABLE = "RUN_NOT_FORKABLE"
    RUN_ID_IN_USE = "RUN_ID_IN_USE"
    RUN_NOT_RESUMABLE = "RUN_NOT_RESUMABLE"
    RUN_NOT_STEERABLE = "RUN_NOT_STEERABLE"
    RUN_SUSPENDED = "RUN_SUSPENDED"
    RUN_ELSEWHERE = "RUN_ELSEWHERE"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    SESSION_REFUSED = "SESSION_REFUSED"
    FORK_MISMATCH = "FORK_MISMATCH"
    REPLAY_FAILED = "REPLAY_FAILED"
    JOURNAL_OFF = "JOURNAL_OFF"
    JOURNAL_UNAVAILABLE = "JOURNAL_UNAVAILABLE"
    APPROVAL_NOT_FOUND = "APPROVAL_NOT_FOUND"
    APPROVAL_NOT_ALLOWED = "APPROVAL_NOT_ALLOWED"
    APPROVAL_CLOSED = "APPROVAL_CLOSED"
    APPROVAL_CHANGED = "APPROVAL_CHANGED"
    HOOK_NOT_FOUND = "HOOK_NOT_FOUND"
    HOOK_UNRESPONSIVE = "HOOK_UNRESPONSIVE"
    TOO_MANY_CALLS = "TOO_MANY_CALLS"
    ANSWERS_UNREAD = "ANSWERS_UNREAD"
    ANSWER_DROPPED = "ANSWER_DROPPED"
    REQUEST_INCOMPLETE = "REQUEST_INCOMPLETE"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    DRAINING = "DRAINING"
    RELOAD_REFUSED = "RELOAD_REFUSED"
    STATE_UNWRITABLE = "STATE_UNWRITABLE"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was refused before anything ran: one row of the table in `fumehood_server.rpc.status`."""

    reason: RefusalReason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    """For programs: `metadata` of the `google.rpc.ErrorInfo`."""


class RefusedError(FumehoodError):
    """A request is refused before anything ran. The caller must change it or try elsewhere."""

    def __init__(self, refusal: Refusal) -> None:
        """Keep the refusal."""
        super().__init__(refusal.message)
        self.refusal = refusal
