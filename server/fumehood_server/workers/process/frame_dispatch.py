"""Takes each frame of one process to where it belongs, and finds those that break a rule of the wire."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
from fumehood.v1 import plugin_pb2

from fumehood_server.model.worker import WorkerState
from fumehood_server.telemetry import get_logger
from fumehood_server.token_bucket import TokenBucket
from fumehood_server.workers import faults
from fumehood_server.workers.faults import EscalationStep, Violation
from fumehood_server.workers.output.log_rate import LogRate
from fumehood_server.workers.output.scrubbing import Steps, is_short, scrub_frame
from fumehood_server.workers.process.lifecycle import EndRequest
from fumehood_server.workers.process.value_collector import MAX_FRAMES, ValueCollector
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.attempt import AttemptTable, WorkerAttempt
    from fumehood_server.workers.process.lifecycle import Lifecycle
    from fumehood_server.workers.process.limit_enforcement import LimitEnforcement
    from fumehood_server.workers.process.requests import RequestRouter

UNKNOWN_FRAMES_BURST = 1000
UNKNOWN_FRAMES_PER_SECOND = 100.0
"""Frames that say nothing we know are ignored, so that newer plugins work; a stream of nothing else is an attack."""

MAX_FIELDS = 12_288
"""Fields of a frame. The largest result, of 1,024 blobs of which everything is said, has 10,242."""
MAX_READY_FIELDS = 20_480
"""Fields of `Ready`: 1,024 tools that set every field and require eight things."""

_REQUESTS = frozenset({"http_request", "secret_request", "question", "inference_request"})
"""Frames by which a call requests something of the sidecar."""

_LEVELS = {
    plugin_pb2.LOG_LEVEL_DEBUG: "debug",
    plugin_pb2.LOG_LEVEL_WARNING: "warning",
    plugin_pb2.LOG_LEVEL_ERROR: "error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTargets:
    """Where the frames of one process go."""

    plugin: str
    worker_id: str
    one_call: bool
    """Whether the process serves one call and is killed with its result."""
    max_updates: int
    life: Lifecycle
    table: AttemptTable
    requests: RequestRouter
    limits: LimitEnforcement
    log: PluginLog
    log_lines: TokenBucket
    log_rate: LogRate


class FrameDispatcher:
    """Reads what frames mean (`wire.frame_reader.FrameHandler`). Every one of them may be hostile."""

    def __init__(self, targets: DispatchTargets) -> None:
        """For one process."""
        self._to = targets
        self._unknown = TokenBucket(
            burst=UNKNOWN_FRAMES_BURST,
            per_second=UNKNOWN_FRAMES_PER_SECOND,
            clock=asyncio.get_running_loop().time,
        )
        self._dropped_logs = 0
        self.greeting = plugin_pb2.Ready()
        """What the process said of itself when it became ready."""
        self.greeted = False
        """Whether the process has become ready."""

    @property
    def closed(self) -> bool:
        """See `FrameHandler`."""
        return self._to.life.requested is EndRequest.KILL

    @property
    def max_fields(self) -> int:
        """See `FrameHandler`."""
        return MAX_FIELDS if self.greeted else MAX_READY_FIELDS

    def take_violation(self, violation: Violation, problem: str) -> None:
        """See `FrameHandler`."""
        self._to.life.violated(violation, problem)

    def take_fault(self, error: Exception) -> None:
        """See `FrameHandler`."""
        to = self._to
        get_logger().error("a plugin's frame could not be taken", exc_info=error, worker_id=to.worker_id)
        to.life.fail(faults.unread_error(to.plugin, error))

    def take_end(self) -> None:
        """See `FrameHandler`."""
        self._to.life.pipe_closed(Violation.STDOUT_CLOSED, "it closed its stdout")

    def take_frame(self, frame: plugin_pb2.PluginFrame, size: int) -> Steps | None:
        """See `FrameHandler`. Secrets are taken out first, in steps unless the frame is short, and then it is taken."""
        redactor = self._to.log.redactor
        if redactor.active and self._is_wanted(frame, size):
            steps = scrub_frame(frame, redactor)
            if not is_short(frame, size):
                return self._take_in_steps(steps, frame, size)
            for _ in steps:
                pass
        self._take(frame, size)
        return None

    def _take_in_steps(self, steps: Steps, frame: plugin_pb2.PluginFrame, size: int) -> Steps:
        yield from steps
        self._take(frame, size)

    def _is_wanted(self, frame: plugin_pb2.PluginFrame, size: int) -> bool:
        """Whether anybody sees what it says: not values that are left out, nor an update that nobody waits for."""
        kind = frame.WhichOneof("frame")
        if kind == "recorded_values":
            attempt = self._to.table.under_way.get(frame.recorded_values.invocation_id)
            return attempt is not None and _values_of(attempt).keeps(frame.recorded_values, size)
        if kind == "update":
            attempt = self._to.table.under_way.get(frame.update.invocation_id)
            return attempt is not None and attempt.invocation.on_update is not None and attempt.cancel_reason is None
        return True

    def _take(self, frame: plugin_pb2.PluginFrame, size: int) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "result":
            self._take_result(frame.result, size)
        elif kind == "update":
            self._take_update(frame.update, size)
        elif kind == "log":
            self._take_log_line(frame.log, size)
        elif kind == "ready":
            self._take_ready(frame.ready)
        elif kind in _REQUESTS:
            self._take_request(frame, kind, size)
        elif kind == "recorded_values":
            self._take_values(frame.recorded_values, size)
        elif not self._unknown.take():
            self._to.life.violated(Violation.TOO_MANY_UNKNOWN_FRAMES, "it sends nothing but frames without a meaning")

    def skip_greeting(self) -> None:
        """The process was forked from one that had said Ready, and says it no more."""
        self.greeted = True

    def _take_ready(self, ready: plugin_pb2.Ready) -> None:
        life = self._to.life
        if self.greeted:
            life.violated(Violation.SECOND_READY, "it said Ready twice")
        elif ready.protocol_version not in messages.PROTOCOL_VERSIONS:
            spoken = messages.PROTOCOL_VERSIONS
            life.fail(faults.version_error(self._to.plugin, ready.protocol_version, spoken))
        elif life.state is WorkerState.STARTING:
            self.greeted = True
            self.greeting = ready
            life.become_ready()

    def _take_result(self, message: plugin_pb2.Result, size: int) -> None:
        to = self._to
        attempt = to.table.under_way.get(message.invocation_id)
        if attempt is None:
            self._refuse_stray(message.invocation_id, Violation.SECOND_RESULT, "it sent two results for one call")
            return
        result = messages.result(message, output_bytes=attempt.output_bytes + size)
        del to.table.under_way[message.invocation_id]
        attempt.output_bytes += size
        to.table.served += 1
        to.requests.end(attempt.invocation_id)
        if attempt.cancel_reason is not None:
            finished = not message.HasField("error")
            attempt.fail(attempt.cancelled_error(EscalationStep.CANCEL_FRAME, tool_finished=finished))
        else:
            if result.error is not None:
                result = replace(result, error=to.limits.attribute_failure(result.error, attempt))
            attempt.resolve(result)
        if to.one_call:  # nothing that it still does is anybody's
            to.life.request(EndRequest.KILL)
        elif to.life.requested:
            to.life.notify()

    def _take_update(self, message: plugin_pb2.Update, size: int) -> None:
        to = self._to
        attempt = to.table.under_way.get(message.invocation_id)
        if attempt is None:
            self._refuse_stray(
                message.invocation_id, Violation.FRAME_AFTER_RESULT, "it sent an update after the result"
            )
            return
        attempt.output_bytes += size
        attempt.updates += 1
        if attempt.updates > to.max_updates:
            to.life.violated(Violation.TOO_MANY_UPDATES, f"it sent over {to.max_updates} updates for one call")
        elif attempt.invocation.on_update is not None and attempt.cancel_reason is None:
            attempt.invocation.on_update(messages.update(message, attempt.updates))

    def _take_request(self, frame: plugin_pb2.PluginFrame, kind: str, size: int) -> None:
        requests = self._to.requests
        attempt = self._requesting(getattr(frame, kind).invocation_id, size)
        if attempt is None:
            return
        if kind == "http_request":
            requests.take_http(attempt, frame.http_request, size)
        elif kind == "secret_request":
            requests.take_secret(attempt, frame.secret_request)
        elif kind == "question":
            requests.take_question(attempt, frame.question, size)
        else:
            requests.take_inference(attempt, frame.inference_request, size)

    def _take_values(self, message: plugin_pb2.RecordedValues, size: int) -> None:
        attempt = self._to.table.under_way.get(message.invocation_id)
        if attempt is None:
            problem = "it sent recorded values after the result"
            self._refuse_stray(message.invocation_id, Violation.FRAME_AFTER_RESULT, problem)
            return
        if not _values_of(attempt).take(message, size):
            problem = f"it sent over {MAX_FRAMES} frames of recorded values for one call"
            self._to.life.violated(Violation.TOO_MANY_VALUES, problem)

    def _take_log_line(self, message: plugin_pb2.Log, size: int) -> None:
        to = self._to
        to.log_rate.count(size)
        if message.invocation_id > to.table.last_id or not self.greeted:
            self._refuse_stray(message.invocation_id, Violation.UNKNOWN_INVOCATION, "")
            return
        if not to.log_lines.take():
            self._dropped_logs += 1
            return
        attempt = to.table.under_way.get(message.invocation_id)
        dropped, self._dropped_logs = self._dropped_logs, 0
        to.log.write(
            "log",
            _LEVELS.get(message.level, "info"),
            message.message,
            worker_id=to.worker_id,
            call_id="" if attempt is None else attempt.invocation.call_id,
            dropped=dropped,
            fields_json=_object_or_nothing(message.fields_json),
        )

    def _requesting(self, invocation_id: int, size: int) -> WorkerAttempt | None:
        """The attempt that requests something of the sidecar. None: no such one, for which the process is ended."""
        attempt = self._to.table.under_way.get(invocation_id)
        if attempt is None:
            self._refuse_stray(invocation_id, Violation.FRAME_AFTER_RESULT, "it asked for something after the result")
        else:
            attempt.output_bytes += size
        return attempt

    def _refuse_stray(self, invocation_id: int, if_known: Violation, problem: str) -> None:
        """A frame for a call that is not under way: never was, or is over."""
        life = self._to.life
        if not self.greeted:
            life.violated(Violation.FRAME_BEFORE_READY, "it sent another frame before Ready")
        elif 0 < invocation_id <= self._to.table.last_id:
            life.violated(if_known, problem)
        else:
            life.violated(Violation.UNKNOWN_INVOCATION, f"it sent a frame for call {invocation_id}, which never was")


def _values_of(attempt: WorkerAttempt) -> ValueCollector:
    if attempt.values is None:
        attempt.values = ValueCollector(attempt.invocation.max_recorded_bytes)
    return attempt.values


def _object_or_nothing(text: str) -> str:
    """The fields of a log line, if they are a JSON object of reasonable size."""
    if not text or len(text) > messages.MAX_LINE_BYTES:
        return ""
    try:
        return text if isinstance(orjson.loads(text), dict) else ""
    except orjson.JSONDecodeError:
        return ""
