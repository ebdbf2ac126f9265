"""What a worker can do wrong, and the error that each of its calls ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin_requests import RefusedHost
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Reason, safe_to_repeat
from fumehood_server.model.worker import CancelReason
from fumehood_server.secrets import SecretUnavailableError

MESSAGE_LINES = 20
"""How many of a worker's last lines an error's message quotes. Python names the cause last, Node first of 17 lines."""

_MESSAGE_LINE_CHARACTERS = 160
_DETAIL_LINE_CHARACTERS = 1000


PRINTED = "most often something was printed to stdout, which is the wire: print to stderr"
"""What a frame that is none, or never ends, most often is."""


class Violation(StrEnum):
    """Rules of the wire that a plugin can break. Stable words: an error carries one as `details.violation`."""

    LENGTH_TOO_LONG = "length_too_long"
    FRAME_TOO_LARGE = "frame_too_large"
    TOO_MANY_ELEMENTS = "too_many_elements"
    FRAME_MALFORMED = "frame_malformed"
    FRAME_STALLED = "frame_stalled"
    FRAME_BEFORE_READY = "frame_before_ready"
    SECOND_READY = "second_ready"
    PROTOCOL_VERSION = "protocol_version"
    UNKNOWN_INVOCATION = "unknown_invocation"
    SECOND_RESULT = "second_result"
    FRAME_AFTER_RESULT = "frame_after_result"
    TOO_MANY_UPDATES = "too_many_updates"
    TOO_MANY_VALUES = "too_many_values"
    REQUEST_ID = "request_id"
    ANSWERS_NOT_READ = "answers_not_read"
    TOO_MANY_UNKNOWN_FRAMES = "too_many_unknown_frames"
    STDIN_CLOSED = "stdin_closed"
    STDOUT_CLOSED = "stdout_closed"


class EscalationStep(StrEnum):
    """What ended a call or a worker, mildest first. An error carries it as `details.ended_by`."""

    CANCEL_FRAME = "cancel_frame"
    """The plugin answered, or exited, within the grace."""
    CONDEMNED = "condemned"
    """The plugin did not answer; its process goes on for other calls' sake, takes no new ones and is ended soon."""
    SIGTERM = "sigterm"
    SIGKILL = "sigkill"


def violation_error(plugin: str, violation: Violation, problem: str) -> CallError:
    """A plugin broke a rule of the wire. Its author must mend it."""
    return CallError(
        code=Code.TOOL_PROTOCOL_ERROR,
        message=f'plugin "{plugin}" broke the wire protocol and was ended: {problem}',
        details={"plugin": plugin, "violation": violation.value},
    )


def version_error(plugin: str, version: int, spoken: Sequence[int]) -> CallError:
    """A plugin chose a version that was not offered. Its author must mend it."""
    return CallError(
        code=Code.CONFIG_PLUGIN_INVALID,
        message=f'plugin "{plugin}" speaks version {version} of the wire protocol; this sidecar speaks {_list(spoken)}',
        details={
            "plugin": plugin,
            "violation": Violation.PROTOCOL_VERSION.value,
            "version": version,
            "spoken": list(spoken),
        },
    )


def secret_unavailable_error(plugin: str, problem: SecretUnavailableError) -> CallError:
    """A process gets a secret at its start, and the secret can't be had. The operator must see to it."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'plugin "{plugin}" can\'t be started: {problem.problem}',
        details={"plugin": plugin, "reason": problem.code},
    )


def other_definitions_error(plugin: str, problem: str) -> CallError:
    """A process declares other tools than those that were accepted. The operator must look at them."""
    return CallError(
        code=Code.CONFIG_PLUGIN_INVALID,
        message=f'plugin "{plugin}" was ended: it declares other tools than those that were pinned: {problem}',
        details={"plugin": plugin, "reason": "definition_changed", "problem": problem},
    )


def death_error(plugin: str, description: str, last_lines: Sequence[str], *, ready: bool, mid_frame: bool) -> CallError:
    """A plugin's process ended by itself or by somebody outside."""
    when = "during the call" if ready else "at start, before it was ready"
    details: dict[str, Any] = {"plugin": plugin, "exit": description, "phase": "call" if ready else "start"}
    error = CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'plugin "{plugin}" ended {when}: {description}',
        retryable=True,
        details=details,
    )
    return with_last_lines(in_mid_frame(error) if mid_frame else error, last_lines)


def never_ready_error(
    plugin: str, timeout_s: float, last_lines: Sequence[str], *, mid_frame: bool = False
) -> CallError:
    """A plugin's process lives and does not say `Ready`."""
    error = CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'plugin "{plugin}" was started and did not say Ready within {timeout_s:g} s '
        "(server.start_timeout_s; raise it where a start takes longer, as on a busy machine)",
        retryable=True,
        details={"plugin": plugin, "phase": "start", "timeout_s": timeout_s},
    )
    return with_last_lines(in_mid_frame(error) if mid_frame else error, last_lines)


def in_mid_frame(error: CallError) -> CallError:
    """The error, with the word that the process had begun a frame and not ended it."""
    message = f"{error.message}, in the middle of a frame ({PRINTED})"
    return replace(error, message=message, details={**error.details, "mid_frame": True})


def unverified_error(plugin: str, reason: Reason) -> CallError:
    """What was read of a plugin is not what would be started."""
    remedy = f" ({reason.remedy})" if reason.remedy else ""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'plugin "{plugin}" can\'t be started: {reason.message}{remedy}',
        details={
            "plugin": plugin,
            "reasons": [{"code": reason.code, "message": reason.message, "remedy": reason.remedy}],
        },
    )


def cancelled_error(
    plugin: str,
    level: Level,
    reason: CancelReason,
    step: EscalationStep,
    *,
    tool_finished: bool = False,
    error: CallError | None = None,
) -> CallError:
    """A call ended because it was asked to. The executor, which knows whose deadline it was, may choose another code.

    `tool_finished` is True when the tool had a result without an error all the same, which nobody gets to see. `error`
    is what is said already of why it was ended.
    """
    code = {
        CancelReason.DEADLINE: Code.TOOL_TIMEOUT,
        CancelReason.LIMIT: Code.TOOL_RESOURCE_EXHAUSTED,
    }.get(reason, Code.CANCELLED_SIGNAL)
    details: dict[str, Any] = {"plugin": plugin, "cancel_reason": reason.value, "ended_by": step.value}
    if error is not None:
        details |= error.details
    if step is not EscalationStep.CANCEL_FRAME and not safe_to_repeat(level):
        details["outcome_unknown"] = True
    if tool_finished:
        details["tool_finished"] = True
    message = f"the call was ended ({reason.value})" if error is None else error.message
    return CallError(code=code, message=message, details=details)


def cancellation_ignored_error(plugin: str) -> CallError:
    """A call lost its worker because another call there ignored its cancellation."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'the process of plugin "{plugin}" was ended because another call there ignored its cancellation',
        retryable=True,
        details={"plugin": plugin, "phase": "call"},
    )


def shutdown_error(plugin: str) -> CallError:
    """A call waited for a worker when the sidecar began to shut down."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'no worker of plugin "{plugin}" is started any more: the sidecar is shutting down',
        retryable=True,
        details={"plugin": plugin, "phase": "shutdown"},
    )


def internal_error(plugin: str, error: Exception) -> CallError:
    """The sidecar itself failed while it started a worker. We must mend it."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'the sidecar failed while it started plugin "{plugin}": {type(error).__name__}: {error}',
        details={"plugin": plugin, "phase": "start", "reason": "internal_error"},
    )


def unread_error(plugin: str, error: Exception) -> CallError:
    """The sidecar itself failed while it took what a worker said. We must mend it."""
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f'the sidecar failed while it took what plugin "{plugin}" said, and ended it: {type(error).__name__}',
        details={"plugin": plugin, "phase": "call", "reason": "internal_error"},
    )


def unsendable_error(problem: ValueError) -> CallError:
    """A call holds text that no protobuf string can hold, so it was never sent. Its caller must mend it."""
    return CallError(code=Code.TOOL_EXECUTION_FAILED, message=f"the call can't be sent: {problem}")


def ending_error(plugin: str) -> CallError:
    """A call came for a worker that had begun to end, so it was never sent."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'the process of plugin "{plugin}" is ending',
        retryable=True,
        details={"plugin": plugin, "phase": "dispatch"},
    )


def unsent_error(plugin: str, unsent_bytes: int) -> CallError:
    """A worker does not read its stdin, so the call was never sent."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'plugin "{plugin}" does not read its calls: {unsent_bytes} bytes wait for it',
        retryable=True,
        details={"plugin": plugin, "phase": "dispatch", "unsent_bytes": unsent_bytes},
    )


def too_large_error(plugin: str, size_bytes: int, limit_bytes: int) -> CallError:
    """A call does not fit into one frame."""
    return CallError(
        code=Code.TOOL_RESOURCE_EXHAUSTED,
        message=f'the call is too large for plugin "{plugin}": {size_bytes} bytes, and a frame holds {limit_bytes}',
        details={
            "plugin": plugin,
            "limit": "max_frame_bytes",
            "value": limit_bytes,
            "usage": size_bytes,
            "unit": "bytes",
        },
    )


def backoff_error(cause: CallError, retry_after_s: float) -> CallError:
    """A worker failed a moment ago, before it had served a call, and is not started again yet.

    A limit that it reached was an earlier call's, and no word about this one, which may be tried again.
    """
    wait_s = round(max(retry_after_s, 0.001), 3)
    if cause.code is Code.TOOL_RESOURCE_EXHAUSTED:
        return CallError(
            code=Code.TOOL_UNAVAILABLE,
            message=f"an earlier call ended the process: {cause.message} (it is not started again for {wait_s:g} s)",
            retryable=True,
            details={"plugin": cause.details.get("plugin", ""), "retry_after_s": wait_s},
            caused_by=cause,
        )
    return CallError(
        code=cause.code,
        message=f"{cause.message} (it is not started again for {wait_s:g} s)",
        retryable=cause.retryable,
        details={**cause.details, "retry_after_s": wait_s},
        caused_by=cause.caused_by,
    )


def earlier_call_error(cause: CallError) -> CallError:
    """A process ended by `cause`, which is a call's own: others are told no more of it than that."""
    plugin = str(cause.details.get("plugin", ""))
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f'the process of plugin "{plugin}" ended during an earlier call',
        retryable=True,
        details={"plugin": plugin, "phase": "dispatch"},
    )


def lost_call_error(cause: CallError, level: Level, *, dispatched: bool) -> CallError:
    """What a call ends with whose worker ended by `cause`: a repeatable one with the cause, another as unknown.

    Nobody knows how far a call got that may have changed the world. Where a limit ended it the code
    says that, since repeating it would meet the limit again, and `details.outcome_unknown` the rest. `dispatched` is
    False when not one byte of the call reached the process, whatever its level.
    """
    if not dispatched:
        # What the process died of, and its last lines, are another call's, whose caller may be somebody else.
        plugin = str(cause.details.get("plugin", ""))
        return CallError(
            code=Code.TOOL_UNAVAILABLE,
            message=f'the call was not sent: the process of plugin "{plugin}" ended before',
            retryable=True,
            details={"plugin": plugin, "phase": "dispatch", "dispatched": False},
        )
    if safe_to_repeat(level):
        return cause
    if cause.code is Code.TOOL_RESOURCE_EXHAUSTED:
        message = f"{cause.message} Nobody knows whether it took effect."
        return replace(cause, message=message, details={**cause.details, "outcome_unknown": True})
    return CallError(
        code=Code.TOOL_OUTCOME_UNKNOWN,
        message=f"nobody knows whether the call took effect: {cause.message}",
        details=cause.details,
        caused_by=cause,
    )


def with_last_lines(error: CallError, last_lines: Sequence[str]) -> CallError:
    """The error with a worker's last lines: a few in the message, more in `details.stderr`."""
    if not last_lines:
        return error
    quoted = "\n".join(line[:_MESSAGE_LINE_CHARACTERS] for line in last_lines[-MESSAGE_LINES:])
    details: Mapping[str, Any] = {
        **error.details,
        "stderr": [line[:_DETAIL_LINE_CHARACTERS] for line in last_lines],
    }
    return CallError(
        code=error.code,
        message=f"{error.message}. Its last lines:\n{quoted}",
        retryable=error.retryable,
        details=details,
        caused_by=error.caused_by,
    )


def with_refused_hosts(error: CallError, refused: Sequence[RefusedHost]) -> CallError:
    """The error with where the relay did not let the program go while the call ran: most programs don't say."""
    shown = [{"host": each.host, "port": each.port, "reason": each.reason} for each in refused]
    return replace(error, details={**error.details, "refused_hosts": shown}) if shown else error


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
