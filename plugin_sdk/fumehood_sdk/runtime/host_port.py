"""Carries what calls ask of the sidecar, and the answers back to whoever waits. Imported when the first call asks."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

from fumehood_sdk.errors import Cancelled, HttpRefused, SecretRefused
from fumehood_sdk.wire import requests
from fumehood_sdk.wire.answers import HttpHead, HttpPiece, SecretAnswer

if TYPE_CHECKING:
    from fumehood_sdk.call import Call
    from fumehood_sdk.http import HttpRequest, HttpResponse
    from fumehood_sdk.runtime.writer import Writer
    from fumehood_sdk.wire.host import Answer

_Kind = TypeVar("_Kind", bound="Answer")
_HttpKind = TypeVar("_HttpKind", HttpHead, HttpPiece)
_Put = Callable[["Answer | None"], None]


class HostPort:
    """The `Host` of a process that serves calls. Safe for several threads."""

    def __init__(self, writer: Writer, hand_over: Callable[[], bool]) -> None:
        """`hand_over` sees to it that another thread reads frames while this one waits; False: none can be had."""
        self._writer = writer
        self._hand_over = hand_over
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[int, int], _Put] = {}

    def deliver(self, answer: Answer) -> None:
        """Hand an answer to whoever waits for it. One that nobody waits for any more is dropped."""
        put = self._waiting.get((answer.invocation_id, answer.request_id))
        if put is not None:
            put(answer)

    def secret(self, call: Call, name: str) -> bytes:
        """See `Host`."""
        with _Waiting(self, call, lambda number: self._ask_secret(call, number, name)) as waiting:
            return _value(waiting.next(SecretAnswer))

    async def secret_async(self, call: Call, name: str) -> bytes:
        """See `Host`."""
        async with _AsyncWaiting(self, call, lambda number: self._ask_secret(call, number, name)) as waiting:
            return _value(await waiting.next(SecretAnswer))

    def http(self, call: Call, request: HttpRequest) -> HttpResponse:
        """See `Host`."""
        with _Waiting(self, call, lambda number: self._ask_http(call, number, request)) as waiting:
            head = _whole(waiting.next(HttpHead))
            pieces = []
            while True:
                piece = _whole(waiting.next(HttpPiece))
                pieces.append(piece.data)
                if piece.end:
                    return _response(head, pieces)

    async def http_async(self, call: Call, request: HttpRequest) -> HttpResponse:
        """See `Host`."""
        async with _AsyncWaiting(self, call, lambda number: self._ask_http(call, number, request)) as waiting:
            head = _whole(await waiting.next(HttpHead))
            pieces = []
            while True:
                piece = _whole(await waiting.next(HttpPiece))
                pieces.append(piece.data)
                if piece.end:
                    return _response(head, pieces)

    def wait(self, call: Call, put: _Put) -> int:
        """Have the answers to a request put somewhere. Returns the request's number."""
        number = next(self._numbers)
        self._waiting[call.invocation_id, number] = put
        return number

    def forget(self, call: Call, number: int) -> None:
        """Nobody waits for this request any more."""
        self._waiting.pop((call.invocation_id, number), None)

    def read_elsewhere(self) -> None:
        """See to it that frames are read while this thread waits.

        Raises:
            RuntimeError: this is an event loop's thread, or no thread can be had.
        """
        asyncio = sys.modules.get("asyncio")
        if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises
            raise RuntimeError("this would hold up every asynchronous call: await the form whose name begins with a")
        if not self._hand_over():
            raise RuntimeError("no thread can be had to read the answer: raise the limit of processes")

    def _ask_secret(self, call: Call, number: int, name: str) -> None:
        self._writer.request(call, requests.SECRET_REQUEST, requests.secret_request(call.invocation_id, number, name))

    def _ask_http(self, call: Call, number: int, request: HttpRequest) -> None:
        body = requests.http_request(
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
            self._writer.request(call, requests.HTTP_REQUEST, body)
        except ValueError as error:
            raise HttpRefused(str(error), reason="request_too_large") from error


class _Waiting:
    """One request of a synchronous tool, from before it is sent until its last answer."""

    __slots__ = ("_ask", "_call", "_number", "_port", "_queue", "_wake")

    def __init__(self, port: HostPort, call: Call, ask: Callable[[int], None]) -> None:
        from queue import SimpleQueue  # noqa: PLC0415 - asynchronous tools don't need it

        self._port = port
        self._call = call
        self._ask = ask
        self._number = 0
        self._queue: SimpleQueue[Answer | None] = SimpleQueue()
        self._wake = lambda: self._queue.put(None)

    def __enter__(self) -> Self:
        self._port.read_elsewhere()
        self._number = self._port.wait(self._call, self._queue.put)
        self._call.on_cancel(self._wake)
        try:
            self._ask(self._number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._call.wakers.remove(self._wake)
        self._port.forget(self._call, self._number)

    def next(self, kind: type[_Kind]) -> _Kind:
        """The next answer.

        Raises:
            Cancelled: the call was told to end.
        """
        answer = self._queue.get()
        if answer is None:
            raise Cancelled(self._call.cancel_reason)
        return _of(kind, answer)


class _AsyncWaiting:
    """The same of an asynchronous one, whose task is cancelled by the runtime."""

    __slots__ = ("_ask", "_call", "_number", "_port", "_queue")

    def __init__(self, port: HostPort, call: Call, ask: Callable[[int], None]) -> None:
        import asyncio  # noqa: PLC0415 - loaded already by whoever awaits this

        self._port = port
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

        self._number = self._port.wait(self._call, put)
        try:
            self._ask(self._number)
        except BaseException:
            self._port.forget(self._call, self._number)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._port.forget(self._call, self._number)

    async def next(self, kind: type[_Kind]) -> _Kind:
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
    if answer.problem is not None:
        from fumehood_sdk.http import problem_error  # noqa: PLC0415 - loaded already by whoever asked

        raise problem_error(answer.problem.reason, answer.problem.message, retryable=answer.problem.retryable)
    return answer


def _response(head: HttpHead, pieces: list[bytes]) -> HttpResponse:
    from fumehood_sdk.http import HttpResponse  # noqa: PLC0415 - likewise

    return HttpResponse(
        head.status, url=head.url, headers=tuple(head.headers), content=b"".join(pieces), redirects=head.redirects
    )
