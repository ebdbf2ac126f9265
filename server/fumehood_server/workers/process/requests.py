"""The requests that one process's calls make of the sidecar: which are taken, how many at a time, how they end."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from fumehood_server.errors import PluginRequestError
from fumehood_server.model.plugin_requests import RequestingCall
from fumehood_server.secrets import SecretUnavailableError
from fumehood_server.telemetry import get_logger
from fumehood_server.workers.faults import Violation
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.secrets import Redactor
    from fumehood_server.workers.process.attempt import CallTable, WorkerCall
    from fumehood_server.workers.wire.channel import Channel

MAX_UNDER_WAY = 8
"""Requests of one call at a time. One more is refused, and may be made again."""
MAX_REQUESTS = 10_000
"""Requests of one call. The numbers of all of them are kept, since none may be used twice."""
MAX_ASKED_BYTES = 16 * 1024 * 1024
"""Frames with requests that are under way, of all calls of a process: four of the largest."""
HIGH_WATER_BYTES = 256 * 1024
"""Answers that wait for a process to read them, before the next part of one is made: four times what a pipe holds."""
MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""Refusals are answered at once. A process that asks on and on without reading them is ended when so much waits."""
MAX_NAME_CHARACTERS = 64
"""Of a secret's name in a message: as many as one can have."""

_log = get_logger()


class _Asking:
    """What is kept of one call that has asked for something."""

    __slots__ = ("caller", "ended", "over", "seen", "tasks")

    def __init__(self, caller: RequestingCall) -> None:
        self.caller = caller
        self.seen: set[int] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.over = False
        """Whether the call was told to end: nothing more is done for it."""
        self.ended = False
        """Whether it has: nothing more may be said of it."""


class _Request(Protocol):
    """One request: how it is performed and how it is refused."""

    def refusal(self, error: PluginRequestError) -> bytes:
        """The frame that says that there is no answer, or no more of it."""

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, channel: Channel) -> None:
        """Have it done, and send the answer. Raises `PluginRequestError`."""


class HostCallRouter:
    """Takes requests out of a worker's frames and sends the answers. Idle until the first one comes."""

    def __init__(
        self,
        spec: WorkerSpec,
        plugin_requests: PluginRequestHandler | None,
        redactor: Redactor,
        *,
        on_violation: Callable[[Violation, str], None],
    ) -> None:
        """`on_violation` ends the process for breaking a rule of the wire. Without `plugin_requests` all is refused."""
        self._spec = spec
        self._plugin_requests = plugin_requests
        self._redactor = redactor
        self._violated = on_violation
        self._asking: dict[int, _Asking] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked_bytes = 0
        self._relay: asyncio.Task[None] | None = None

    def open(self, channel: Channel, calls: CallTable, relay: socket.socket | None) -> None:
        """Send answers there, and serve and own the relay's socket, if there is one. Before the first frame comes."""
        self._channel = channel
        self._calls = calls
        if relay is None:
            return
        if self._plugin_requests is None:
            relay.close()
            return
        self._relay = asyncio.get_running_loop().create_task(self._serve(self._plugin_requests, relay))
        # Also where the task was cancelled before its first step, and so had none.
        self._relay.add_done_callback(lambda _: relay.close())

    def secret(self, call: WorkerCall, message: plugin_pb2.SecretRequest) -> None:
        """A call asks for a secret."""
        self._take(call, message.request_id, _SecretRequest(call, message, self._redactor), 0)

    def http(self, call: WorkerCall, message: plugin_pb2.HttpRequest, size: int) -> None:
        """A call asks for an HTTP request, in a frame of `size` bytes."""
        self._take(call, message.request_id, _HttpRequest(call, message), size)

    def end(self, invocation_id: int) -> None:
        """A call is over: nothing more is done or said for it. Idempotent."""
        asking = self._asking.pop(invocation_id, None)
        if asking is not None:
            asking.ended = True
            self._stop(asking)

    def cancel(self, invocation_id: int) -> None:
        """A call was told to end: what it asked for is given up, and what it asks for from now on is refused."""
        asking = self._asking.get(invocation_id)
        if asking is not None:
            self._stop(asking)

    def close(self) -> None:
        """The process is gone. Idempotent."""
        for invocation_id in tuple(self._asking):
            self.end(invocation_id)
        if self._relay is not None:
            self._relay.cancel()

    def _take(self, call: WorkerCall, request_id: int, request: _Request, size: int) -> None:
        asking = self._of(call)
        if request_id == 0 or request_id in asking.seen:
            self._violated(Violation.REQUEST_ID, f"it numbered a request {request_id}, which is 0 or was used before")
            return
        plugin_requests = self._plugin_requests
        problem = self._problem(asking, size)
        if len(asking.seen) < MAX_REQUESTS:
            asking.seen.add(request_id)
        if plugin_requests is not None and problem is None:
            task = asyncio.get_running_loop().create_task(self._perform(plugin_requests, asking, request))
            for tasks in (asking.tasks, self._tasks):
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            # Also where the task is cancelled before its first step, and so has none.
            task.add_done_callback(functools.partial(self._over, asking, request, size))
            self._asked_bytes += size
            return
        nothing = PluginRequestError("host_not_granted", "this process is granted nothing to ask for")
        self._refuse(request.refusal(problem or nothing))

    def _of(self, call: WorkerCall) -> _Asking:
        """What is kept of a call that asks, from now on if this is its first request."""
        asking = self._asking.get(call.invocation_id)
        if asking is None:
            invocation = call.invocation
            caller = RequestingCall(
                spec=self._spec, tool=invocation.tool, call_id=invocation.call_id, context=invocation.context
            )
            asking = self._asking[call.invocation_id] = _Asking(caller)
            asking.over = call.cancel_reason is not None
            call.egress = caller.usage
        return asking

    async def _serve(self, plugin_requests: PluginRequestHandler, relay: socket.socket) -> None:
        try:
            async with plugin_requests.relay(self._spec, relay, self._sole_caller):
                await asyncio.get_running_loop().create_future()
        except Exception as problem:  # noqa: BLE001 - the process goes on, and reaches nothing
            _log.error("a relay failed", exc_info=problem, plugin=self._spec.plugin)

    def _sole_caller(self) -> RequestingCall | None:
        """Whose program it is that connects: known while one call runs."""
        calls = self._calls.under_way
        return self._of(next(iter(calls.values()))).caller if len(calls) == 1 else None

    def _problem(self, asking: _Asking, size: int) -> PluginRequestError | None:
        """Why a request is not even tried."""
        if asking.over:
            return _cancelled()
        if len(asking.seen) >= MAX_REQUESTS:
            return PluginRequestError(
                "request_limit", f"the call has made {MAX_REQUESTS} requests, and may make no more"
            )
        if len(asking.tasks) >= MAX_UNDER_WAY:
            problem = f"{MAX_UNDER_WAY} requests of this call are under way already: wait for one of them"
            return PluginRequestError("too_many_requests", problem, retryable=True)
        if self._asked_bytes + size > MAX_ASKED_BYTES:
            problem = f"requests of {self._asked_bytes} bytes are under way in this process: wait for one of them"
            return PluginRequestError("too_many_requests", problem, retryable=True)
        return None

    async def _perform(self, plugin_requests: PluginRequestHandler, asking: _Asking, request: _Request) -> None:
        """See to it that the request gets its answer, and nobody hears of it once its call is over."""
        try:
            await request.perform(plugin_requests, asking.caller, self._channel)
        except PluginRequestError as problem:
            error = problem
        except Exception as problem:  # noqa: BLE001 - a fault of ours must not leave a call without its answer
            _log.error("a request of a call failed", exc_info=problem, call_id=asking.caller.call_id)
            error = PluginRequestError("internal_error", "the sidecar failed; its log says more")
        else:
            return
        if not asking.ended:
            self._refuse(request.refusal(error))

    def _over(self, asking: _Asking, request: _Request, size: int, task: asyncio.Task[None]) -> None:
        self._asked_bytes -= size
        if task.cancelled() and not asking.ended:
            # The call may go on until its result, and somebody in it may wait for this.
            self._refuse(request.refusal(_cancelled()))

    def _refuse(self, frame: bytes) -> None:
        self._channel.send(frame)
        if self._channel.unsent_bytes > MAX_UNREAD_BYTES:
            self._violated(Violation.ANSWERS_NOT_READ, "it asks for more and more and reads no answers")

    def _stop(self, asking: _Asking) -> None:
        asking.over = True
        for task in tuple(asking.tasks):
            task.cancel()


class _SecretRequest:
    """A request for a secret. It is answered with one frame."""

    __slots__ = ("_invocation_id", "_name", "_redactor", "_request_id", "_tool")

    def __init__(self, call: WorkerCall, message: plugin_pb2.SecretRequest, redactor: Redactor) -> None:
        self._invocation_id = call.invocation_id
        self._request_id = message.request_id
        self._name = message.name
        self._tool = call.invocation.tool
        self._redactor = redactor

    def refusal(self, error: PluginRequestError) -> bytes:
        """See `_Request`."""
        return messages.secret_response(self._invocation_id, self._request_id, problem=error.message)

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, channel: Channel) -> None:
        """See `_Request`."""
        if self._name not in caller.spec.secrets:
            name = self._name[:MAX_NAME_CHARACTERS]
            problem = (
                f'the secret "{name}" is not granted to this tool: it takes both requires = ["secret:{name}"] and '
                f"`secrets` in [plugin.tools.{self._tool}]"
            )
            raise PluginRequestError("secret_not_granted", problem)
        await channel.drained(HIGH_WATER_BYTES)
        try:
            value = await plugin_requests.secret(caller, self._name)
        except SecretUnavailableError as error:
            # The remedy is the operator's; a model that reads this can do nothing with it.
            raise PluginRequestError(error.code, error.problem) from error
        self._redactor.learn(self._name, value)
        channel.send(messages.secret_response(self._invocation_id, self._request_id, value=value))


class _HttpRequest:
    """An HTTP request. It is answered with a head and pieces of the body, or with a failure in place of either."""

    __slots__ = ("_after_head", "_ask", "_invocation_id", "_request_id")

    def __init__(self, call: WorkerCall, message: plugin_pb2.HttpRequest) -> None:
        self._invocation_id = call.invocation_id
        self._request_id = message.request_id
        self._ask = messages.http_ask(message)
        self._after_head = False

    def refusal(self, error: PluginRequestError) -> bytes:
        """See `_Request`."""
        return messages.http_failure(self._invocation_id, self._request_id, error, after_head=self._after_head)

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, channel: Channel) -> None:
        """See `_Request`."""
        await channel.drained(HIGH_WATER_BYTES)
        async with plugin_requests.http(caller, self._ask) as answer:
            channel.send(messages.http_response(self._invocation_id, self._request_id, answer))
            self._after_head = True
            async for piece in answer.body():
                # Nothing more is read from the network while the process doesn't read.
                await channel.drained(HIGH_WATER_BYTES)
                channel.send(messages.http_body(self._invocation_id, self._request_id, piece, end=False))
        channel.send(messages.http_body(self._invocation_id, self._request_id, b"", end=True))


def _cancelled() -> PluginRequestError:
    return PluginRequestError("call_cancelled", "the call was told to end")
