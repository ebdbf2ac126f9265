"""Routes the requests that one process's calls make of the sidecar, such as HTTP and secrets, within bounds."""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING

from fumehood_server.errors import PluginRequestError
from fumehood_server.model.plugin_requests import RequestingCall
from fumehood_server.telemetry import get_logger
from fumehood_server.workers.faults import Violation
from fumehood_server.workers.process.request_kinds import (
    HttpRequest,
    InferenceRequest,
    QuestionRequest,
    Request,
    SecretRequest,
)

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.secrets import Redactor
    from fumehood_server.workers.process.attempt import AttemptTable, WorkerAttempt
    from fumehood_server.workers.process.lifecycle import Lifecycle
    from fumehood_server.workers.wire.pipes import PipeWriter

MAX_UNDER_WAY = 8
"""Requests of one call at a time. One more is refused, and may be made again."""
MAX_REQUESTS = 10_000
"""Requests of one call. The numbers of all of them are kept, since none may be used twice."""
MAX_ASKED_BYTES = 16 * 1024 * 1024
"""Frames with requests that are under way, of all calls of a process: four of the largest."""
MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""Refusals are answered at once. A process that asks on and on without reading them is ended when so much waits."""

_log = get_logger()


class _CallRequests:
    """The requests of one call."""

    __slots__ = ("caller", "ended", "gave_up", "seen", "tasks")

    def __init__(self, caller: RequestingCall) -> None:
        self.caller = caller
        self.seen: set[int] = set()
        """The numbers of all of them."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Those under way."""
        self.gave_up = False
        """Whether the call was told to end: nothing more is done for it."""
        self.ended = False
        """Whether it has: nothing more may be said of it."""


class RequestRouter:
    """Takes requests out of a worker's frames, performs each in a task, and sends the answers."""

    def __init__(
        self,
        spec: WorkerSpec,
        plugin_requests: PluginRequestHandler | None,
        redactor: Redactor,
        *,
        writer: PipeWriter,
        table: AttemptTable,
        life: Lifecycle,
    ) -> None:
        """Answer through `writer` what the attempts in `table` request. Without `plugin_requests` all is refused."""
        self._spec = spec
        self._plugin_requests = plugin_requests
        self._redactor = redactor
        self._writer = writer
        self._table = table
        self._life = life
        self._tasks: asyncio.TaskGroup | None = None
        self._by_call: dict[int, _CallRequests] = {}
        self._asked_bytes = 0
        self._relay: asyncio.Task[None] | None = None

    def open(self, tasks: asyncio.TaskGroup, relay: socket.socket | None) -> None:
        """Perform requests in `tasks` from now on. Serve and own the relay's socket, if there is one."""
        self._tasks = tasks
        if relay is None:
            return
        if self._plugin_requests is None:
            relay.close()
            return
        self._relay = tasks.create_task(self._serve_relay(self._plugin_requests, relay))
        # Also where the task was cancelled before its first step, and so had none.
        self._relay.add_done_callback(lambda _: relay.close())

    def take_secret(self, attempt: WorkerAttempt, message: plugin_pb2.SecretRequest) -> None:
        """A call requests a secret."""
        self._take(attempt, message.request_id, SecretRequest(attempt, message, self._redactor), 0)

    def take_http(self, attempt: WorkerAttempt, message: plugin_pb2.HttpRequest, size: int) -> None:
        """A call requests an HTTP request, in a frame of `size` bytes."""
        self._take(attempt, message.request_id, HttpRequest(attempt, message), size)

    def take_question(self, attempt: WorkerAttempt, message: plugin_pb2.Question, size: int) -> None:
        """A call has a person asked something, in a frame of `size` bytes."""
        self._take(attempt, message.request_id, QuestionRequest(attempt, message), size)

    def take_inference(self, attempt: WorkerAttempt, message: plugin_pb2.InferenceRequest, size: int) -> None:
        """A call asks for a model's answer, in a frame of `size` bytes."""
        self._take(attempt, message.request_id, InferenceRequest(attempt, message), size)

    def end(self, invocation_id: int) -> None:
        """A call is over: nothing more is done or said for it. Idempotent."""
        requests = self._by_call.pop(invocation_id, None)
        if requests is not None:
            requests.ended = True
            _give_up(requests)

    def cancel(self, invocation_id: int) -> None:
        """A call was told to end: what it asked for is given up, and what it asks for from now on is refused."""
        requests = self._by_call.get(invocation_id)
        if requests is not None:
            _give_up(requests)

    def close(self) -> None:
        """The process is gone. Idempotent."""
        for invocation_id in tuple(self._by_call):
            self.end(invocation_id)
        if self._relay is not None:
            self._relay.cancel()

    def _take(self, attempt: WorkerAttempt, request_id: int, request: Request, size: int) -> None:
        requests = self._of(attempt)
        if request_id == 0 or request_id in requests.seen:
            problem = f"it numbered a request {request_id}, which is 0 or was used before"
            self._life.violated(Violation.REQUEST_ID, problem)
            return
        refusal = self._refusal(requests, size)
        if len(requests.seen) < MAX_REQUESTS:
            requests.seen.add(request_id)
        if refusal is not None:
            self._send_refusal(request.refusal(refusal))
            return
        if self._plugin_requests is None or self._tasks is None:
            nothing = PluginRequestError("host_not_granted", "this process is granted nothing to ask for")
            self._send_refusal(request.refusal(nothing))
            return
        task = self._tasks.create_task(self._perform(self._plugin_requests, requests, request))
        requests.tasks.add(task)
        self._asked_bytes += size
        # A callback, since a task that is cancelled before its first step has none.
        task.add_done_callback(functools.partial(self._finish, requests, request, size))

    def _of(self, attempt: WorkerAttempt) -> _CallRequests:
        """The requests of a call, of which this may be the first."""
        requests = self._by_call.get(attempt.invocation_id)
        if requests is None:
            invocation = attempt.invocation
            caller = RequestingCall(
                spec=self._spec,
                tool=invocation.tool,
                call_id=invocation.call_id,
                context=invocation.context,
                about=invocation.about,
                trace=invocation.trace,
            )
            requests = self._by_call[attempt.invocation_id] = _CallRequests(caller)
            requests.gave_up = attempt.cancel_reason is not None
            attempt.egress = caller.usage
        return requests

    async def _serve_relay(self, plugin_requests: PluginRequestHandler, relay: socket.socket) -> None:
        try:
            async with plugin_requests.relay(self._spec, relay, self._sole_caller):
                await asyncio.get_running_loop().create_future()
        except Exception as problem:  # noqa: BLE001 - the process goes on, and reaches nothing
            _log.error("a relay failed", exc_info=problem, plugin=self._spec.plugin)

    def _sole_caller(self) -> RequestingCall | None:
        """Whose program it is that connects: known while one call runs."""
        under_way = self._table.under_way
        return self._of(next(iter(under_way.values()))).caller if len(under_way) == 1 else None

    def _refusal(self, requests: _CallRequests, size: int) -> PluginRequestError | None:
        """Why a request is not even tried."""
        if requests.gave_up:
            return _cancelled()
        if len(requests.seen) >= MAX_REQUESTS:
            return PluginRequestError(
                "request_limit", f"the call has made {MAX_REQUESTS} requests, and may make no more"
            )
        if len(requests.tasks) >= MAX_UNDER_WAY:
            problem = f"{MAX_UNDER_WAY} requests of this call are under way already: wait for one of them"
            return PluginRequestError("too_many_requests", problem, retryable=True)
        if self._asked_bytes + size > MAX_ASKED_BYTES:
            problem = f"requests of {self._asked_bytes} bytes are under way in this process: wait for one of them"
            return PluginRequestError("too_many_requests", problem, retryable=True)
        return None

    async def _perform(self, plugin_requests: PluginRequestHandler, requests: _CallRequests, request: Request) -> None:
        """See to it that the request gets its answer, and nobody hears of it once its call is over."""
        try:
            await request.perform(plugin_requests, requests.caller, self._writer)
        except PluginRequestError as problem:
            error = problem
        except Exception as problem:  # noqa: BLE001 - a fault of ours must not leave a call without its answer
            _log.error("a request of a call failed", exc_info=problem, call_id=requests.caller.call_id)
            error = PluginRequestError("internal_error", "the sidecar failed; its log says more")
        else:
            return
        if not requests.ended:
            self._send_refusal(request.refusal(error))

    def _finish(self, requests: _CallRequests, request: Request, size: int, task: asyncio.Task[None]) -> None:
        requests.tasks.discard(task)
        self._asked_bytes -= size
        if task.cancelled() and not requests.ended:
            # The call may go on until its result, and somebody in it may wait for this.
            self._send_refusal(request.refusal(_cancelled()))

    def _send_refusal(self, frame: bytes) -> None:
        self._writer.send(frame)
        if self._writer.unsent_bytes > MAX_UNREAD_BYTES:
            self._life.violated(Violation.ANSWERS_NOT_READ, "it asks for more and more and reads no answers")


def _give_up(requests: _CallRequests) -> None:
    requests.gave_up = True
    for task in tuple(requests.tasks):
        task.cancel()


def _cancelled() -> PluginRequestError:
    return PluginRequestError("call_cancelled", "the call was told to end")
