"""Reads the one request of a method: few at a time, and the one that has been arriving for longest makes room.

To gRPC these methods take a stream of requests, which is the same on the wire: so it reads a message, and takes more of
it than the first flow-control window, only when it is asked to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.rpc.parsing import MALFORMED, NOT_UNDERSTOOD, parser
from fumehood_server.rpc.status import aborting
from fumehood_server.rpc.unread import STREAM_BYTES, UnreadAnswers

MAX_ARRIVING = 256
"""Requests that are read at a time. One that came with its bytes is read within some milliseconds."""

_NO_REQUEST = Refusal(RefusalReason.REQUEST_INVALID, "the stream ended without a request")
_TOO_SLOW = Refusal(
    RefusalReason.REQUEST_INCOMPLETE, f"{MAX_ARRIVING} newer requests are arriving, and this one is still incomplete"
)

_Answer = TypeVar("_Answer")
_Context = grpc.aio.ServicerContext[Any, Any]
_Method = Callable[[Any, _Context], Awaitable[_Answer]]


class RequestReader:
    """The requests that are arriving, oldest first. For one event loop."""

    __slots__ = ("_arriving", "_unread")

    def __init__(self, unread: UnreadAnswers) -> None:
        """`unread` counts the one answer of a unary method as its caller's."""
        self._unread = unread
        self._arriving: dict[asyncio.Task[Any], None] = {}
        """The handlers that read. One that is told to give up is taken out first."""

    def unary(self, method: _Method[bytes], message: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
        """A method of one request and one answer."""

        async def answering(request: object, context: _Context) -> bytes:
            return self._count(await method(request, context), context)

        return grpc.stream_unary_rpc_method_handler(self._reading(answering), parser(message))

    def streaming(self, method: _Method[None], message: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
        """A method of one request and a stream of answers."""
        return grpc.stream_stream_rpc_method_handler(self._reading(method), parser(message))

    def _reading(self, method: _Method[_Answer]) -> _Method[_Answer]:
        async def reading(_requests: object, context: _Context) -> _Answer:
            return await method(await self._read(context), context)

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

    async def _read(self, context: _Context) -> object:
        """The request.

        Raises:
            RefusedError: there is none, or it doesn't come.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if len(self._arriving) >= MAX_ARRIVING:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.cancel()
        self._arriving[task] = None
        try:
            request = await context.read()
        except asyncio.CancelledError:
            if task in self._arriving:  # gRPC's: its caller has gone away
                raise
            task.uncancel()
            raise RefusedError(_TOO_SLOW) from None
        finally:
            self._arriving.pop(task, None)
        if request is grpc.aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
            raise RefusedError(_NO_REQUEST)
        if request is MALFORMED:
            raise RefusedError(NOT_UNDERSTOOD)
        return request
