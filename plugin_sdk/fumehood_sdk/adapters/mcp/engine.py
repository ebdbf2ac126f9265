"""Runs calls on an MCP server: one thread polls the sidecar's frames and the server's lines, and matches them by id."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fumehood_sdk.adapters.mcp import negotiation
from fumehood_sdk.adapters.mcp.client_requests import (
    MAX_SHOWN_REQUESTS,
    RefusedInput,
    refusal,
    refused_text,
    shown_request,
)
from fumehood_sdk.adapters.mcp.connection import Message, Respond, ServerConnection
from fumehood_sdk.adapters.mcp.inputs import InputRound, Inputs
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.readings import READINGS, Reading
from fumehood_sdk.adapters.mcp.relisting import Relisting
from fumehood_sdk.adapters.mcp.remote import REQUEST_KEY
from fumehood_sdk.adapters.mcp.results import convert_answer, input_required, refused_input
from fumehood_sdk.wire import plugin_frames, sidecar_frames
from fumehood_sdk.wire.framing import FrameReader
from fumehood_sdk.wire.plugin_frames import Failure, Sent
from fumehood_sdk.wire.sidecar_answers import Answer

UPDATE_INTERVAL_S = 0.005
"""Between two updates of one call; what comes sooner is dropped, but its place is taken by the next one."""
MAX_UPDATE_CHARACTERS = 2048
MAX_ROUNDS = 10
"""Rounds in which one call may ask its client for something."""
EOF_GRACE_S = 0.5
"""From the end of stdin to the end of the server."""
REASONS = {1: "deadline", 2: "caller", 3: "shutdown", 4: "limit"}


class McpCall:
    """A call under way."""

    __slots__ = (
        "asked",
        "cancel_reason",
        "convert",
        "fields",
        "give_up_at",
        "invocation_id",
        "method",
        "request_id",
        "rounds",
        "updated_at",
    )

    def __init__(
        self,
        invocation_id: int,
        fields: bytes,
        method: str = "tools/call",
        convert: Callable[[Message], Sent | Failure] = convert_answer,
    ) -> None:
        self.invocation_id = invocation_id
        self.fields = fields
        """Members of the request's parameters, each before a comma, such as name and arguments."""
        self.method = method
        self.convert = convert
        self.request_id = 0
        self.asked: list[dict[str, Any]] = []
        """What the server asked of its client for it, and was refused."""
        self.rounds = 0
        self.updated_at = -math.inf
        self.cancel_reason = ""
        self.give_up_at = math.inf


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
        self._roots = roots
        self._log = log
        self._calls: dict[int, McpCall] = {}
        self._is_alone = True
        """Whether the call that is under way has had the server to itself so far."""
        self._by_request: dict[int, McpCall] = {}
        self._out: list[bytes] = []
        self._inputs = Inputs(self._out.append)
        self._cancelled: set[McpCall] = set()
        self._list = Relisting(connection, session, tools, log)
        self._ends_at = math.inf
        connection.on_notification = self._take_notification
        connection.on_request = self._take_request

    def run(self) -> float:
        """Serve until the sidecar's frames end or a shutdown is over. Returns how long the server may take to exit.

        Raises:
            ServerFault: the server is gone or broke the protocol.
            WireError: the sidecar's bytes are not the wire.
        """
        if not self._session.is_remote and self._session.is_stateless and self._session.lists_change:
            fields = b'"notifications":{"toolsListChanged":true},'
            self._connection.request("subscriptions/listen", self._session.params(fields), lambda _: None)
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
            for frame in self._list.take_released():
                self._invoke(frame)
        self._flush()
        return max(0.0, self._ends_at - time.monotonic())

    # What the sidecar says.

    def _take_frames(self) -> bool:
        if not self._frames.fill_buffer():
            return False
        while (data := self._frames.next_buffered_frame()) is not None:
            frame = sidecar_frames.decode_frame(data)
            if isinstance(frame, sidecar_frames.Invoke):
                if not self._list.holds(frame):
                    self._invoke(frame)
            elif isinstance(frame, sidecar_frames.Cancel):
                self._cancel(frame.invocation_id, REASONS.get(frame.reason, "unspecified"), frame.grace_s)
            elif isinstance(frame, Answer):
                self._inputs.take(frame)
            elif isinstance(frame, sidecar_frames.Shutdown):
                self._ends_at = min(self._ends_at, time.monotonic() + frame.grace_s / 2)
        return True

    def _invoke(self, frame: sidecar_frames.Invoke) -> None:
        reading = READINGS.get(frame.tool)
        found = self._tools.get(frame.tool)
        if reading is None and found is None:
            self._answer(frame.invocation_id, Failure(f"this plugin has no tool {frame.tool!r}", "unknown_tool"))
        elif frame.tool in self._list.differing:
            changed = self._list.differing[frame.tool]
            text = f"the MCP server has changed {frame.tool} since it was pinned: {changed}"
            details = json.dumps({"changed": changed}).encode()
            self._answer(frame.invocation_id, Failure(text, "definition_changed", details_json=details))
        elif len(self._calls) >= self._max_calls:
            text = f"{self._max_calls} calls are under way here already"
            self._answer(frame.invocation_id, Failure(text, "too_many_calls", retryable=True))
        elif reading is not None:
            self._read(frame, reading)
        elif found is not None:
            fields = b'"name":%b,"arguments":%b,' % (json.dumps(found[0]).encode(), _one_line(frame.arguments_json))
            self._begin(McpCall(frame.invocation_id, fields), frame)

    def _read(self, frame: sidecar_frames.Invoke, reading: Reading) -> None:
        """Pass a reserved tool's call through, whose arguments are the parameters of its method."""
        if reading.capability not in self._session.offers:
            self._answer(frame.invocation_id, reading.unoffered())
            return
        members = _one_line(frame.arguments_json).strip()[1:-1].strip()
        fields = members + b"," if members else b""
        self._begin(McpCall(frame.invocation_id, fields, reading.method, reading.convert), frame)

    def _begin(self, call: McpCall, frame: sidecar_frames.Invoke) -> None:
        self._is_alone = not self._calls
        self._calls[call.invocation_id] = call
        self._request(call, _trace(frame))

    def _request(self, call: McpCall, more: bytes = b"", fields: bytes = b"") -> None:
        number = self._connection.next_id
        params = b'{%b%b"_meta":{"progressToken":%d%b%b}}' % (call.fields, fields, number, self._session.meta, more)
        call.request_id = number
        self._by_request[number] = call
        self._connection.request(call.method, params, partial(self._take_answer, call))

    def _cancel(self, invocation_id: int, reason: str, grace_s: float) -> None:
        if self._list.release(invocation_id):
            self._answer(invocation_id, Failure(f"the call was cancelled ({reason})", "cancelled"))
            return
        call = self._calls.get(invocation_id)
        if call is None or call.cancel_reason:
            return
        call.cancel_reason = reason
        if not call.request_id:  # it waits for an answer of its client's: its server has nothing to do
            self._finish(call, _cancelled(call))
            return
        # A server that stops needn't answer: half of the grace is its time to say how far it came.
        call.give_up_at = time.monotonic() + grace_s / 2
        self._cancelled.add(call)
        params = b'{"requestId":%d,"reason":"%b"}' % (call.request_id, reason.encode())
        self._connection.notify("notifications/cancelled", params)

    # What the server says.

    def _take_answer(self, call: McpCall, answer: Message) -> None:
        self._by_request.pop(call.request_id, None)
        outcome: Sent | Failure
        wanted = input_required(answer)
        if call.cancel_reason:
            outcome = _cancelled(call)
        elif wanted is None:
            outcome = call.convert(answer)
            if call.asked and isinstance(outcome, Failure):
                outcome = refusal(call.asked, outcome.message)
        elif call.rounds < MAX_ROUNDS:
            call.rounds += 1
            self._begin_round(call, wanted)
            return
        else:
            outcome = refused_input(wanted)
        self._finish(call, outcome)

    def _begin_round(self, call: McpCall, wanted: Mapping[str, Any]) -> None:
        """Have everything answered that a result asks for, and then go on with the call."""
        call.request_id = 0
        current = InputRound(wanted)
        for name, request in (wanted.get("inputRequests") or {}).items():
            take = partial(self._take_input, call, current, name, request)
            if request["method"] == "roots/list":
                take(self._roots.encode())
            else:
                self._inputs.ask(call.invocation_id, request["method"], request.get("params"), take)
        if not wanted.get("inputRequests"):
            self._request(call, fields=current.fields())

    def _take_input(
        self, call: McpCall, current: InputRound, name: str, request: Message, answer: bytes | RefusedInput
    ) -> None:
        current.take(name, request, answer)
        if not current.is_over or call.invocation_id not in self._calls:
            return
        if current.refused:
            self._finish(call, refusal(current.refused))
        else:
            self._request(call, fields=current.fields())

    def _take_request(self, message: Message, respond: Respond) -> None:
        """Have a request of the server's answered (up to 2025-11-25). Most often it doesn't say what call it is for.

        Then it is for the only call, unless others were there beside that: it may be late, and for one of those.
        """
        call: McpCall | None = None
        if self._session.is_remote and REQUEST_KEY in message:
            call = self._by_request.get(message[REQUEST_KEY])
        elif self._is_alone:
            call = next(iter(self._calls.values()), None)
        if call is None:
            several = (
                'several calls have been under way, and it doesn\'t say which one it is for: "concurrency = 1" in '
                "plugin.toml parts them"
            )
            respond(RefusedInput("call_unknown", several if self._calls else "no such call is under way"))
            return
        self._inputs.ask(
            call.invocation_id, message["method"], message.get("params"), partial(self._respond, call, message, respond)
        )

    def _respond(self, call: McpCall, message: Message, respond: Respond, answer: bytes | RefusedInput) -> None:
        if isinstance(answer, RefusedInput) and len(call.asked) < MAX_SHOWN_REQUESTS:
            call.asked.append(shown_request(message["method"], message.get("params"), answer))
            if call.invocation_id in self._calls:
                self._update(call, refused_text(call.asked[-1])[:MAX_UPDATE_CHARACTERS], None, None)
        respond(answer)

    def _take_notification(self, message: Message) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        method = message["method"]
        if method == "notifications/progress":
            self._take_progress(params)
        elif method == "notifications/tools/list_changed":
            self._list.has_changed()
        elif method == "notifications/message":
            self._log.write_message(params)

    def _take_progress(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        call = self._by_request.get(token) if type(token) is int else None
        now = time.monotonic()
        if call is None or now < call.updated_at + UPDATE_INTERVAL_S:
            return
        call.updated_at = now
        message = params.get("message")
        text = message[:MAX_UPDATE_CHARACTERS] if isinstance(message, str) else ""
        progress, total = _number(params.get("progress")), _number(params.get("total"))
        self._update(call, text, progress, total)

    def _update(self, call: McpCall, text: str, progress: float | None, total: float | None) -> None:
        body = plugin_frames.encode_update(call.invocation_id, text, progress, total, b"")
        self._out.append(plugin_frames.delimited_frame(plugin_frames.UPDATE, body))

    # Time, and the wire out.

    def _run_due(self, now: float) -> None:
        if self._cancelled:
            for call in [each for each in self._cancelled if each.give_up_at <= now]:
                self._connection.abandon(call.request_id)
                self._by_request.pop(call.request_id, None)
                self._finish(call, _cancelled(call))
        self._list.look_if_due(now)

    def _wait_ms(self) -> float | None:
        due = min((each.give_up_at for each in self._cancelled), default=math.inf)
        due = min(due, self._ends_at, self._list.due_at)
        return None if due == math.inf else max(0.0, math.ceil((due - time.monotonic()) * 1000))

    def _is_over(self) -> bool:
        return self._ends_at < math.inf and (not self._calls or time.monotonic() >= self._ends_at)

    def _finish(self, call: McpCall, outcome: Sent | Failure) -> None:
        self._cancelled.discard(call)
        if self._calls.pop(call.invocation_id, None) is not None:
            self._answer(call.invocation_id, outcome)
            self._inputs.forget(call.invocation_id)

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


def _cancelled(call: McpCall) -> Failure:
    return Failure(f"the call was cancelled ({call.cancel_reason})", "cancelled")


def _one_line(arguments_json: bytes) -> bytes:
    """Arguments for a line that holds one message. JSON has line ends between its tokens alone, where a space does."""
    return (arguments_json or b"{}").replace(b"\n", b" ").replace(b"\r", b" ")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _trace(frame: sidecar_frames.Invoke) -> bytes:
    """The call's trace as fields of `_meta` (W3C Trace Context), each after a comma."""
    fields = ((b"traceparent", frame.traceparent), (b"tracestate", frame.tracestate))
    return b"".join(b',"%b":%b' % (name, json.dumps(value.decode()).encode()) for name, value in fields if value)
