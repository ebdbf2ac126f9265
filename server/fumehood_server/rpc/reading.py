"""Reads the requests of every method: few arrive at a time, and the oldest of the caller that has most makes room.

To gRPC all methods take a stream of requests, which is the same on the wire: so it reads a message, and takes more of
it than the first flow-control window, only when it is asked to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import grpc
from google.protobuf.message import Message

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Caller
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.pacing import MESSAGES_PER_ITERATION, Pacer
from fumehood_server.rpc.parsing import MAX_FIELDS, RequestParser
from fumehood_server.rpc.status import aborting
from fumehood_server.rpc.unread import STREAM_BYTES, UnreadAnswers
from fumehood_server.rpc.waiting import WaitingRequests

MAX_ARRIVING = 256
"""Requests that are read at a time. One that came with its bytes is read within some milliseconds."""

MAX_WAITING = 256
"""Requests that wait for a write or a check, of up to 2 MiB: as many as there are calls by default."""

MAX_OUTCOME_WAITS = 2_048
"""Requests that wait for what others have begun. They hold next to nothing."""

_NO_REQUEST = Refusal(RefusalReason.REQUEST_INVALID, "the stream ended without a request")

_Answer = TypeVar("_Answer")
_Message = TypeVar("_Message", bound=Message)
_Context = grpc.aio.ServicerContext[Any, Any]
_Method = Callable[[Any, _Context], Awaitable[_Answer]]


@dataclass(frozen=True, slots=True)
class Method:
    """A method whose requests a reader reads. Nobody else makes one."""

    handler: grpc.RpcMethodHandler[Any, Any]


@dataclass(frozen=True, slots=True)
class Service:
    """A service as the server registers it."""

    name: str
    methods: Mapping[str, Method]

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        """For gRPC."""
        return grpc.method_handlers_generic_handler(
            self.name, {name: method.handler for name, method in self.methods.items()}
        )


class Requests(Generic[_Message]):
    """The requests of one stream, each parsed within the bounds of its method; with a pacer, when it is its turn."""

    __slots__ = ("_context", "_pacer", "_parser")

    def __init__(self, parser: RequestParser[_Message], context: _Context, pacer: Pacer | None = None) -> None:
        self._parser = parser
        self._context = context
        self._pacer = pacer

    async def read(self) -> _Message | None:
        """The next one. None: there are no more.

        Raises:
            RefusedError: it is none, or too large. The next one can be read all the same.
        """
        data = await self._context.read()
        if data is grpc.aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
            return None
        if self._pacer is not None:
            await self._pacer.turn()
        return await self._parser.parse(data)


class RequestReader:
    """The requests that are arriving, oldest first. For one event loop."""

    __slots__ = (
        "_arriving",
        "_max_arriving",
        "_messages",
        "_turns",
        "_unread",
        "_waiting",
        "_within_s",
        "for_outcomes",
    )

    def __init__(
        self, unread: UnreadAnswers, *, max_arriving: int = MAX_ARRIVING, within_s: float | None = None
    ) -> None:
        """`unread` counts the one answer of a unary method as its caller's.

        A request that is not whole `within_s` after it was asked for is given up. None: only where others need room.
        """
        self._unread = unread
        self._max_arriving = max_arriving
        self._within_s = within_s
        self._turns = Pacer(1)
        self._messages = Pacer(MESSAGES_PER_ITERATION)
        self._waiting = WaitingRequests(MAX_WAITING)
        self.for_outcomes = WaitingRequests(MAX_OUTCOME_WAITS)
        """Those that wait as long as a call or a run takes: others are not to wait for such places."""
        self._arriving: dict[asyncio.Task[Any], tuple[str, str]] = {}
        """The handlers that read, with the `turn_path` of their callers. One that is to give up is taken out first."""

    async def turn(self) -> None:
        """Return when it is this task's turn to go on with a request that holds much."""
        await self._turns.turn()

    def unary(
        self,
        method: _Method[bytes],
        message: type[Message],
        *,
        max_fields: int = MAX_FIELDS,
        max_bytes: int | None = None,
        waits: bool = False,
    ) -> Method:
        """A method of one request and one answer. For the bounds see `RequestParser`.

        `waits`: it may wait for a write of the journal, say, with all of its request in memory. It takes no place of a
        call, and so one of those that such requests have.
        """
        parser = RequestParser(message, self._turns, max_fields=max_fields, max_bytes=max_bytes)

        async def answering(request: object, context: _Context) -> bytes:
            answer = method(request, context)
            del request  # the method keeps what it needs of it, and the rest can be large
            return self._count(await answer, context)

        async def waiting(request: object, context: _Context) -> bytes:
            with self._waiting.take(asking()):
                return await answering(request, context)

        return Method(grpc.stream_unary_rpc_method_handler(self._reading(waiting if waits else answering, parser)))

    def streaming(
        self,
        method: _Method[None],
        message: type[Message],
        *,
        max_fields: int = MAX_FIELDS,
        max_bytes: int | None = None,
    ) -> Method:
        """A method of one request and a stream of answers."""
        parser = RequestParser(message, self._turns, max_fields=max_fields, max_bytes=max_bytes)
        return Method(grpc.stream_stream_rpc_method_handler(self._reading(method, parser)))

    def duplex(
        self,
        method: Callable[[Requests[_Message], _Context], Awaitable[None]],
        message: type[_Message],
        *,
        max_fields: int = MAX_FIELDS,
        max_bytes: int | None = None,
        paced: bool = True,
    ) -> Method:
        """A method of a stream of requests and one of answers. It bounds how many such streams there are, and so reads.

        Each may hold a request that is half here, which counts as none of those that are arriving. Of all paced streams
        together one request is taken in each iteration of the loop.
        """
        pacer = self._messages if paced else None
        parser = RequestParser(message, self._turns, max_fields=max_fields, max_bytes=max_bytes)

        async def serving(_requests: object, context: _Context) -> None:
            await method(Requests(parser, context, pacer), context)

        return Method(grpc.stream_stream_rpc_method_handler(aborting(serving)))

    def _reading(self, method: _Method[_Answer], parser: RequestParser[Any]) -> _Method[_Answer]:
        async def reading(_requests: object, context: _Context) -> _Answer:
            return await method(await self._read(context, parser), context)

        return aborting(reading)

    def _count(self, answer: bytes, context: _Context) -> bytes:
        """The answer, which counts as unread until gRPC has sent it or its caller has gone away.

        Raises:
            RefusedError: there is no room for it.
        """
        unread, caller, size = self._unread, context.peer(), len(answer) + STREAM_BYTES
        unread.add(caller, size)
        context.add_done_callback(lambda _: unread.remove(caller, size))  # type: ignore[arg-type] # no class
        return answer

    async def _read(self, context: _Context, parser: RequestParser[_Message]) -> _Message:
        """The request.

        Raises:
            RefusedError: there is none, it doesn't come, or it is too large.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        path = _turn_path(context)
        self._make_room(path)
        self._arriving[task] = path
        try:
            async with asyncio.timeout(self._within_s):
                request = await Requests(parser, context).read()
        except TimeoutError:
            raise _incomplete(f"the request was not whole within {self._within_s:g} s") from None
        except asyncio.CancelledError:
            if task in self._arriving:  # gRPC's: its caller has gone away
                raise
            task.uncancel()
            raise _incomplete(
                f"{self._max_arriving} requests are arriving, no caller has more of them, and this is its oldest"
            ) from None
        finally:
            self._arriving.pop(task, None)
        if request is None:
            raise RefusedError(_NO_REQUEST)
        return request

    def _make_room(self, path: tuple[str, str]) -> None:
        """Where there is none for one more, of `path`, give up the oldest of the caller that has most of them.

        Of a caller's connections it is likewise that which has most.
        """
        if len(self._arriving) < self._max_arriving:
            return
        paths = [*self._arriving.values(), path]
        of_caller, of_connection = Counter(caller for caller, _ in paths), Counter(paths)
        # The first of the greatest, and so the oldest.
        task, _ = max(self._arriving.items(), key=lambda each: (of_caller[each[1][0]], of_connection[each[1]]))
        del self._arriving[task]
        task.cancel()


def _turn_path(context: _Context) -> tuple[str, str]:
    try:
        return asking().admitted.turn_path
    except LookupError:  # health asks nobody who it is
        return Caller(connection=context.peer()).turn_path


def _incomplete(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INCOMPLETE, message))
