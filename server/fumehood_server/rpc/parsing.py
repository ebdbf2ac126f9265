"""Requests that are not what their method takes: refused in words, instead of by an exception that gRPC reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from fumehood_server.errors import Refusal, RefusalReason
from fumehood_server.rpc.status import abort

MALFORMED: Final = object()
"""Stands for a request whose bytes are no message of its type."""

NOT_UNDERSTOOD = Refusal(RefusalReason.REQUEST_INVALID, "the request is not a message of this method's type")

_Answer = TypeVar("_Answer")
_Method = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[_Answer]]


def parser(message: type[Message]) -> Callable[[bytes], object]:
    """Parses a request, to `MALFORMED` where it can't be."""
    parse = message.FromString

    def parsed(data: bytes) -> object:
        try:
            return parse(data)
        except DecodeError:
            return MALFORMED

    return parsed


def unary(method: _Method[bytes], message: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    """A method of one request and one answer."""
    return grpc.unary_unary_rpc_method_handler(_guarded(method), parser(message))


def streaming(method: _Method[None], message: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    """A method of one request and a stream of answers."""
    return grpc.unary_stream_rpc_method_handler(_guarded(method), parser(message))


def _guarded(method: _Method[_Answer]) -> _Method[_Answer]:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> _Answer:  # noqa: ANN401 - any message
        if request is MALFORMED:
            await abort(context, NOT_UNDERSTOOD)
        return await method(request, context)

    return guarded
