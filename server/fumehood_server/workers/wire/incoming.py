"""What the frames from a plugin mean, and which of them break a rule of the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson
from fumehood.v1 import plugin_pb2

from fumehood_server.workers.faults import Violation
from fumehood_server.workers.output.scrubbing import scrub_update
from fumehood_server.workers.output.token_bucket import Allowance, LogRate
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.attempt import CallTable, WorkerCall
    from fumehood_server.workers.process.requests import HostCallRouter
    from fumehood_server.workers.settings import WorkerSettings

UNKNOWN_FRAMES_BURST = 1000
UNKNOWN_FRAMES_PER_SECOND = 100.0
"""Frames that say nothing we know are ignored, so that newer plugins work; a stream of nothing else is an attack."""

_LEVELS = {
    plugin_pb2.LOG_LEVEL_DEBUG: "debug",
    plugin_pb2.LOG_LEVEL_WARNING: "warning",
    plugin_pb2.LOG_LEVEL_ERROR: "error",
}


class Incoming:
    """Takes each frame of one process to where it belongs."""

    def __init__(
        self,
        worker_id: str,
        calls: CallTable,
        *,
        log: PluginLog,
        log_allowance: Allowance,
        log_rate: LogRate,
        settings: WorkerSettings,
        clock: Callable[[], float],
        is_open: Callable[[], bool],
        on_ready: Callable[[plugin_pb2.Ready], None],
        on_result: Callable[[WorkerCall, plugin_pb2.Result], None],
        on_violation: Callable[[Violation, str], None],
        plugin_requests: HostCallRouter,
    ) -> None:
        """`is_open` says whether `Ready` came. `on_result` gets the call that its `Result` has just ended."""
        self._worker_id = worker_id
        self._calls = calls
        self._log = log
        self._log_allowance = log_allowance
        self._log_rate = log_rate
        self._settings = settings
        self._is_open = is_open
        self._on_ready = on_ready
        self._on_result = on_result
        self._on_violation = on_violation
        self._plugin_requests = plugin_requests
        self._unknown = Allowance(burst=UNKNOWN_FRAMES_BURST, per_second=UNKNOWN_FRAMES_PER_SECOND, clock=clock)
        self._dropped_logs = 0

    def frame(self, frame: plugin_pb2.PluginFrame, size: int) -> None:
        """One frame of `size` bytes."""
        kind = frame.WhichOneof("frame")
        if kind == "result":
            self._result(frame.result, size)
        elif kind == "update":
            self._update(frame.update, size)
        elif kind == "log":
            self._log_rate.add(size)
            self._log_line(frame.log)
        elif kind == "ready":
            self._on_ready(frame.ready)
        elif kind == "http_request":
            call = self._asking(frame.http_request.invocation_id, size)
            if call is not None:
                self._plugin_requests.http(call, frame.http_request, size)
        elif kind == "secret_request":
            call = self._asking(frame.secret_request.invocation_id, size)
            if call is not None:
                self._plugin_requests.secret(call, frame.secret_request)
        elif not self._unknown.take():
            self._on_violation(Violation.TOO_MANY_UNKNOWN_FRAMES, "it sends nothing but frames without a meaning")

    def _result(self, message: plugin_pb2.Result, size: int) -> None:
        call = self._calls.under_way.pop(message.invocation_id, None)
        if call is None:
            self._stray(message.invocation_id, Violation.SECOND_RESULT, "it sent two results for one call")
            return
        call.output_bytes += size
        self._on_result(call, message)

    def _update(self, message: plugin_pb2.Update, size: int) -> None:
        call = self._calls.under_way.get(message.invocation_id)
        if call is None:
            self._stray(message.invocation_id, Violation.FRAME_AFTER_RESULT, "it sent an update after the result")
            return
        call.output_bytes += size
        call.updates += 1
        if call.updates > self._settings.max_updates:
            self._on_violation(
                Violation.TOO_MANY_UPDATES, f"it sent over {self._settings.max_updates} updates for one call"
            )
        elif call.invocation.on_update is not None and call.cancel_reason is None:
            if self._log.redactor.active:
                scrub_update(message, self._log.redactor)
            call.invocation.on_update(messages.update(message, call.updates))

    def _log_line(self, message: plugin_pb2.Log) -> None:
        if message.invocation_id > self._calls.last_id or not self._is_open():
            self._stray(message.invocation_id, Violation.UNKNOWN_INVOCATION, "")
            return
        if not self._log_allowance.take():
            self._dropped_logs += 1
            return
        call = self._calls.under_way.get(message.invocation_id)
        dropped, self._dropped_logs = self._dropped_logs, 0
        self._log.write(
            "log",
            _LEVELS.get(message.level, "info"),
            message.message,
            worker_id=self._worker_id,
            call_id="" if call is None else call.invocation.call_id,
            dropped=dropped,
            fields_json=_object_or_nothing(message.fields_json),
        )

    def _asking(self, invocation_id: int, size: int) -> WorkerCall | None:
        """The call that asks the sidecar for something. None: there is no such call, which has ended the process."""
        call = self._calls.under_way.get(invocation_id)
        if call is None:
            self._stray(invocation_id, Violation.FRAME_AFTER_RESULT, "it asked for something after the result")
        else:
            call.output_bytes += size
        return call

    def _stray(self, invocation_id: int, if_known: Violation, problem: str) -> None:
        """A frame for a call that is not under way: never was, or is over."""
        if not self._is_open():
            self._on_violation(Violation.FRAME_BEFORE_READY, "it sent another frame before Ready")
        elif 0 < invocation_id <= self._calls.last_id:
            self._on_violation(if_known, problem)
        else:
            self._on_violation(
                Violation.UNKNOWN_INVOCATION, f"it sent a frame for call {invocation_id}, which never was"
            )


def _object_or_nothing(text: str) -> str:
    """The fields of a log line, if they are a JSON object of reasonable size."""
    if not text or len(text) > messages.MAX_LINE_BYTES:
        return ""
    try:
        return text if isinstance(orjson.loads(text), dict) else ""
    except orjson.JSONDecodeError:
        return ""
