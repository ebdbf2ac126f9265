"""Sends requests of calls to the sidecar, and correlates its answers by number. Imported for the first one."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

from fumehood_sdk.errors import Cancelled, HttpFailed, HttpRefused, SecretRefused
from fumehood_sdk.http import HttpRequest, HttpResponse
from fumehood_sdk.wire import plugin_requests
from fumehood_sdk.wire.sidecar_answers import Answer, HttpHead, HttpPiece, SecretAnswer

if TYPE_CHECKING:
    from fumehood_sdk.call import Call
    from fumehood_sdk.runtime.frame_writer import FrameWriter

_Kind = TypeVar("_Kind", bound="Answer")
_HttpKind = TypeVar("_HttpKind", HttpHead, HttpPiece)
_Put = Callable[["Answer | None"], None]


class PipeSidecarCalls:
    """The `SidecarCalls` of a process that serves calls. Safe for several threads."""

    def __init__(self, writer: FrameWriter, ensure_reader: Callable[[], bool]) -> None:
        """`ensure_reader` sees to it that another thread reads frames while this one waits; False: none can be had."""
        self._writer = writer
        self._ensure_reader = ensure_reader
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[int, int], _Put] = {}

    def deliver_answer(self, answer: Answer) -> None:
        """Hand an answer to the request that it belongs to. Without such a request it is dropped."""
        put = self._waiting.get((answer.invocation_id, answer.request_id))
        if put is not None:
            put(answer)

    def fetch_secret(self, call: Call, name: str) -> bytes:
        """See `SidecarCalls`."""
        with _PendingRequest(self, call, lambda number: self._ask_secret(call, number, name)) as pending:
            return _value(pending.next_answer(SecretAnswer))

    async def fetch_secret_async(self, call: Call, name: str) -> bytes:
        """See `SidecarCalls`."""
        async with _AsyncPendingRequest(self, call, lambda number: self._ask_secret(call, number, name)) as pending:
            return _value(await pending.next_answer(SecretAnswer))

    def send_http(self, call: Call, request: HttpRequest) -> HttpResponse:
        """See `SidecarCalls`."""
        with _PendingRequest(self, call, lambda number: self._ask_http(call, number, request)) as pending:
            head = _whole(pending.next_answer(HttpHead))
            pieces = []
            while True:
                piece = _whole(pending.next_answer(HttpPiece))
                pieces.append(piece.data)
                if piece.end:
                    return _response(head, pieces)

    async def send_http_async(self, call: Call, request: HttpRequest) -> HttpResponse:
        """See `SidecarCalls`."""
        async with _AsyncPendingRequest(self, call, lambda number: self._ask_http(call, number, request)) as pending:
            head = _whole(await pending.next_answer(HttpHead))
            pieces = []
            while True:
                piece = _whole(await pending.next_answer(HttpPiece))
                pieces.append(piece.data)
                if piece.end:
                    return _response(head, pieces)

    def register_request(self, call: Call, put: _Put) -> int:
        """Have the answers to a request put somewhere. Returns the request's number."""
        number = next(self._numbers)
        self._waiting[call.invocation_id, number] = put
        return number

    def forget_request(self, call: Call, number: int) -> None:
        """Nobody waits for this request any more."""
        self._waiting.pop((call.invocation_id, number), None)

    def ensure_reader(self) -> None:
        """See to it that frames are read while this thread waits.

        Raises:
            RuntimeError: this is an event loop's thread, or no thread can be had.
        """
        asyncio = sys.modules.get("asyncio")
        if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises
            raise RuntimeError("this would hold up every asynchronous call: await the form whose name begins with a")
        if not self._ensure_reader():
            raise RuntimeError("no thread can be had to read the answer: raise the limit of processes")

    def _ask_secret(self, call: Call, number: int, name: str) -> None:
        self._writer.write_request(
            call,
            plugin_requests.SECRET_REQUEST,
            plugin_requests.encode_secret_request(call.invocation_id, number, name),
        )

    def _ask_http(self, call: Call, number: int, request: HttpRequest) -> None:
        body = plugin_requests.encode_http_request(
            call.invocation_id,
            number,
            request.method,
            request.url,
            headers=request.headers,
            body=request.body,
            timeout_s=request.timeout_s,
            max_bytes=request.max_bytes,
            max_redirects=request.max_redirects,
        )
        try:
            self._writer.write_request(call, plugin_requests.HTTP_REQUEST, body)
        except ValueError as error:
            raise HttpRefused(str(error), reason="request_too_large") from error


class _PendingRequest:
    """One request of a synchronous tool, from before it is sent until its last answer."""

    __slots__ = ("_ask", "_call", "_calls", "_number", "_queue", "_wake")

    def __init__(self, calls: PipeSidecarCalls, call: Call, ask: Callable[[int], None]) -> None:
        from queue import SimpleQueue  # noqa: PLC0415 - asynchronous tools don't need it

        self._calls = calls
        self._call = call
        self._ask = ask
        self._number = 0
        self._queue: SimpleQueue[Answer | None] = SimpleQueue()
        self._wake = lambda: self._queue.put(None)

    def __enter__(self) -> Self:
        self._calls.ensure_reader()
        self._number = self._calls.register_request(self._call, self._queue.put)
        self._call.add_cancel_callback(self._wake)
        try:
            self._ask(self._number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel_callbacks.remove(self._wake)
        self._calls.forget_request(self._call, self._number)

    def next_answer(self, kind: type[_Kind]) -> _Kind:
        """The next answer.

        Raises:
            Cancelled: the call was told to end.
        """
        answer = self._queue.get()
        if answer is None:
            raise Cancelled(self._call.cancel_reason)
        return _of(kind, answer)


class _AsyncPendingRequest:
    """One request of an asynchronous tool, whose task `aio` cancels with the call."""

    __slots__ = ("_ask", "_call", "_calls", "_number", "_queue")

    def __init__(self, calls: PipeSidecarCalls, call: Call, ask: Callable[[int], None]) -> None:
        import asyncio  # noqa: PLC0415 - an awaited request has it loaded

        self._calls = calls
        self._call = call
        self._ask = ask
        self._number = 0
        self._queue: asyncio.Queue[Answer | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - likewise

        loop = asyncio.get_running_loop()
        queue = self._queue

        def put(answer: Answer | None) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, answer)

        self._number = self._calls.register_request(self._call, put)
        try:
            self._ask(self._number)
        except BaseException:
            self._calls.forget_request(self._call, self._number)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.forget_request(self._call, self._number)

    async def next_answer(self, kind: type[_Kind]) -> _Kind:
        """The next answer."""
        return _of(kind, await self._queue.get())


def _of(kind: type[_Kind], answer: Answer | None) -> _Kind:
    if not isinstance(answer, kind):
        raise RuntimeError(f"the sidecar answered with {type(answer).__name__} in place of {kind.__name__}")  # noqa: TRY004 - nobody passed a wrong type
    return answer


def _value(answer: SecretAnswer) -> bytes:
    if answer.problem:
        raise SecretRefused(answer.problem, reason="secret_refused")
    return answer.value


def _whole(answer: _HttpKind) -> _HttpKind:
    problem = answer.problem
    if problem is not None:
        kind = HttpFailed if problem.retryable else HttpRefused
        raise kind(problem.message or "the request was refused", reason=problem.reason or "http_failed")
    return answer


def _response(head: HttpHead, pieces: list[bytes]) -> HttpResponse:
    return HttpResponse(
        head.status, url=head.url, headers=tuple(head.headers), content=b"".join(pieces), redirects=head.redirects
    )
