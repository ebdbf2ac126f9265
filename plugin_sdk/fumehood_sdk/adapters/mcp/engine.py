"""Runs calls on an MCP server: one thread polls the sidecar's frames and the server's lines, and matches them by id."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Mapping
from functools import partial

from fumehood_sdk.adapters.mcp import negotiation
from fumehood_sdk.adapters.mcp.call_inputs import CallInputs
from fumehood_sdk.adapters.mcp.calls import Calls, McpCall
from fumehood_sdk.adapters.mcp.client_requests import refusal
from fumehood_sdk.adapters.mcp.connection import LIST_CHANGED, ServerConnection
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.messages import Message
from fumehood_sdk.adapters.mcp.progress import progress_frames, take_kept
from fumehood_sdk.adapters.mcp.readings import READINGS, Reading
from fumehood_sdk.adapters.mcp.relisting import Relisting
from fumehood_sdk.adapters.mcp.results import input_required, malformed, too_many_rounds
from fumehood_sdk.runtime.hello import CANCEL_REASONS
from fumehood_sdk.wire import plugin_frames, sidecar_frames
from fumehood_sdk.wire.framing import FrameReader
from fumehood_sdk.wire.plugin_frames import Failure, Sent
from fumehood_sdk.wire.sidecar_answers import Answer

MAX_ROUNDS = 10
"""Rounds in which one call may ask its client for something."""
EOF_GRACE_S = 0.5
"""From the end of stdin to the end of the server."""


class McpEngine:
    """Serves the calls of one process until the sidecar's frames end."""

    def __init__(
        self,
        frames: FrameReader,
        fds: tuple[int, int],
        connection: ServerConnection,
        session: negotiation.Session,
        tools: Mapping[str, tuple[str, bytes]],
        *,
        max_calls: int,
        roots: str,
        log: LogLines,
    ) -> None:
        """`fds` are the wire's. `tools` are those of `Ready`, as `encode_definitions` returns them."""
        self._frames = frames
        self._fd_in, self._fd_out = fds
        self._connection = connection
        self._session = session
        self._tools = tools
        self._max_calls = max_calls
        self._log = log
        self._calls = Calls(connection, is_remote=session.is_remote)
        self._out: list[bytes] = []
        self._inputs = CallInputs(self._calls, roots, self._out.append)
        self._cancelled: set[McpCall] = set()
        self._relisting = Relisting(connection, session, tools, log)
        self._ends_at = math.inf
        connection.pass_notifications(self._take_notification)
        connection.on_request = self._inputs.take_request

    def run(self) -> float:
        """Serve until the sidecar's frames end or a shutdown is over. Returns how long the server may take to exit.

        Raises:
            ServerFault: the server is gone or broke the protocol.
            WireError: the sidecar's bytes are not the wire.
        """
        self._relisting.subscribe()
        process = self._connection.process
        poller = select.poll()
        poller.register(self._fd_in, select.POLLIN)
        poller.register(process.stdout, select.POLLIN)
        writes = False
        while not self._is_over():
            self._flush()
            if writes is not self._connection.has_unsent:
                writes = self._connection.has_unsent
                if writes:
                    poller.register(process.stdin, select.POLLOUT)
                else:
                    poller.unregister(process.stdin)
            for fd, _ in poller.poll(self._wait_ms()):
                if fd == self._fd_in:
                    if not self._take_frames():
                        self._flush()
                        return EOF_GRACE_S
                elif fd == process.stdout:
                    self._connection.read()
                else:
                    self._connection.flush()
            self._run_due(time.monotonic())
            self._go_on()
        self._flush()
        return max(0.0, self._ends_at - time.monotonic())

    def _go_on(self) -> None:
        """Take up the calls that have what they waited for."""
        for call, going_on in self._inputs.take_ended_rounds():
            if isinstance(going_on, Failure):
                self._finish(call, going_on)
            else:
                self._request(call, going_on)
        for frame in self._relisting.take_released():
            self._invoke(frame)

    # What the sidecar says.

    def _take_frames(self) -> bool:
        if not self._frames.fill_buffer():
            return False
        while (data := self._frames.next_buffered_frame()) is not None:
            frame = sidecar_frames.decode_frame(data)
            if isinstance(frame, sidecar_frames.Invoke):
                if not self._relisting.hold_if_looking(frame):
                    self._invoke(frame)
            elif isinstance(frame, sidecar_frames.Cancel):
                self._cancel(frame.invocation_id, CANCEL_REASONS.get(frame.reason, "unspecified"), frame.grace_s)
            elif isinstance(frame, Answer):
                self._inputs.take_answer(frame)
            elif isinstance(frame, sidecar_frames.Shutdown):
                self._ends_at = min(self._ends_at, time.monotonic() + frame.grace_s / 2)
        return True

    def _invoke(self, frame: sidecar_frames.Invoke) -> None:
        reading = READINGS.get(frame.tool)
        found = self._tools.get(frame.tool)
        if reading is None and found is None:
            self._answer(frame.invocation_id, Failure(f"this plugin has no tool {frame.tool!r}", "unknown_tool"))
        elif frame.tool in self._relisting.differing:
            changed = self._relisting.differing[frame.tool]
            text = f"the MCP server has changed {frame.tool} since it was pinned: {changed}"
            details = json.dumps({"changed": changed}).encode()
            self._answer(frame.invocation_id, Failure(text, "definition_changed", details_json=details))
        elif found is not None and self._relisting.is_unknown:
            text = f"the MCP server has not listed its tools for long, and may have changed {frame.tool}"
            self._answer(frame.invocation_id, Failure(text, "definition_unknown", retryable=True))
        elif len(self._calls) >= self._max_calls:
            text = f"{self._max_calls} calls are under way here already"
            self._answer(frame.invocation_id, Failure(text, "too_many_calls", retryable=True))
        elif reading is not None:
            self._read(frame, reading)
        elif found is not None:
            fields = b'"name":%b,"arguments":%b,' % (json.dumps(found[0]).encode(), _one_line(frame.arguments_json))
            self._begin(McpCall(frame.invocation_id, fields, _trace(frame)))

    def _read(self, frame: sidecar_frames.Invoke, reading: Reading) -> None:
        """Pass a reserved tool's call through, whose arguments are the parameters of its method."""
        if reading.capability not in self._session.offers:
            self._answer(frame.invocation_id, reading.unoffered())
            return
        members = _one_line(frame.arguments_json).strip()[1:-1].strip()
        fields = members + b"," if members else b""
        convert = partial(reading.convert, arguments=frame.arguments_json)
        self._begin(McpCall(frame.invocation_id, fields, _trace(frame), reading.method, convert))

    def _begin(self, call: McpCall) -> None:
        self._calls.begin(call)
        self._request(call)

    def _request(self, call: McpCall, fields: bytes = b"") -> None:
        number = self._connection.next_id
        meta = b'"progressToken":%d%b%b' % (number, self._session.meta, call.trace)
        params = b'{%b%b"_meta":{%b}}' % (call.fields, fields, meta)
        self._calls.has_sent(call, number)
        self._connection.request(call.method, params, partial(self._take_answer, call))

    def _cancel(self, invocation_id: int, reason: str, grace_s: float) -> None:
        if self._relisting.release(invocation_id):
            self._answer(invocation_id, Failure(f"the call was cancelled ({reason})", "cancelled"))
            return
        call = self._calls.of_invocation(invocation_id)
        if call is None or call.cancel_reason:
            return
        call.cancel_reason = reason
        if not call.request_id:  # it waits for an answer of its client's: its server has nothing to do
            self._finish(call, call.cancelled())
            return
        # A server that stops needn't answer: half of the grace is its time to say how far it came.
        call.give_up_at = time.monotonic() + grace_s / 2
        self._cancelled.add(call)
        params = b'{"requestId":%d,"reason":"%b"}' % (call.request_id, reason.encode())
        self._connection.notify("notifications/cancelled", params)

    # What the server says.

    def _take_answer(self, call: McpCall, answer: Message) -> None:
        self._calls.has_answer(call)
        try:
            outcome = self._outcome(call, answer)
        except Exception as error:  # noqa: BLE001 - whatever it is in this answer, the other calls go on
            outcome = malformed(error)
        if outcome is not None:
            self._finish(call, outcome)

    def _outcome(self, call: McpCall, answer: Message) -> Sent | Failure | None:
        """How the call ends. None: it goes on, with a round of what the server asks for."""
        if call.cancel_reason:
            return call.cancelled()
        wanted = input_required(answer)
        if wanted is None:
            outcome = call.convert(answer)
            return refusal(call.asked, outcome.message) if call.asked and isinstance(outcome, Failure) else outcome
        if call.rounds >= MAX_ROUNDS:
            return too_many_rounds(wanted, MAX_ROUNDS)
        call.rounds += 1
        self._inputs.begin_round(call, wanted)
        return None

    def _take_notification(self, message: Message) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        method = message["method"]
        if method == "notifications/progress":
            call = self._calls.of_request(params.get("progressToken"))
            if call is not None:
                self._out.append(progress_frames(call, params, time.monotonic()))
        elif method == LIST_CHANGED:
            self._relisting.has_changed()
        elif method == "notifications/subscriptions/acknowledged":
            self._relisting.take_acknowledgement(params)
        elif method == "notifications/message":
            self._log.write_message(params)

    # Time, and the wire out.

    def _run_due(self, now: float) -> None:
        if self._cancelled:
            for call in [each for each in self._cancelled if each.give_up_at <= now]:
                self._calls.give_up(call)
                self._finish(call, call.cancelled())
        self._relisting.look_if_due(now)

    def _wait_ms(self) -> float | None:
        due = min((each.give_up_at for each in self._cancelled), default=math.inf)
        due = min(due, self._ends_at, self._relisting.due_at)
        return None if due == math.inf else max(0.0, math.ceil((due - time.monotonic()) * 1000))

    def _is_over(self) -> bool:
        return self._ends_at < math.inf and (not self._calls or time.monotonic() >= self._ends_at)

    def _finish(self, call: McpCall, outcome: Sent | Failure) -> None:
        self._cancelled.discard(call)
        if self._calls.end(call):
            self._out.append(take_kept(call))
            self._answer(call.invocation_id, outcome)
            self._inputs.forget(call)

    def _answer(self, invocation_id: int, outcome: Sent | Failure) -> None:
        limit = self._frames.max_frame_bytes
        body = _encode(invocation_id, outcome)
        if (size := plugin_frames.frame_size_bytes(body)) > limit:
            text = f"the result takes {size} bytes and {limit} are allowed"
            body = _encode(invocation_id, Failure(text, "output_too_large"))
        self._out.append(plugin_frames.delimited_frame(plugin_frames.RESULT, body))

    def _flush(self) -> None:
        self._out += self._log.take_frames()
        if self._out:
            view = memoryview(b"".join(self._out))
            self._out.clear()
            while view:
                view = view[os.write(self._fd_out, view) :]


def _encode(invocation_id: int, outcome: Sent | Failure) -> bytes:
    if isinstance(outcome, Failure):
        return plugin_frames.encode_failure(invocation_id, outcome)
    content, details_json, terminate = outcome
    return plugin_frames.encode_result(invocation_id, content, details_json, terminate=terminate)


def _one_line(arguments_json: bytes) -> bytes:
    """Arguments for a line that holds one message. JSON has line ends between its tokens alone, where a space does."""
    return (arguments_json or b"{}").replace(b"\n", b" ").replace(b"\r", b" ")


def _trace(frame: sidecar_frames.Invoke) -> bytes:
    """The call's trace as fields of `_meta` (W3C Trace Context), each after a comma."""
    fields = ((b"traceparent", frame.traceparent), (b"tracestate", frame.tracestate))
    return b"".join(b',"%b":%b' % (name, json.dumps(value.decode()).encode()) for name, value in fields if value)
