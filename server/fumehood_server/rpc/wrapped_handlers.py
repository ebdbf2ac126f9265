"""gRPC interceptor over a service's handlers: each method is wrapped when it is first called.

It wraps handlers and is no `grpc.aio.ServerInterceptor`: those are not told the peer, nor its certificate.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Context], Awaitable[Answer]]

_BEHAVIOURS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class WrappedHandlers(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs alone
    """The handlers of one service. It has no methods but those of the service."""

    def __init__(self, handlers: grpc.GenericRpcHandler[Any, Any]) -> None:
        """Nothing is wrapped yet."""
        self._handlers = handlers
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    @abstractmethod
    def wrap(self, behaviour: Method[Answer], method: str) -> Method[Answer]:
        """What is called in place of a method, which is named "/package.Service/Method"."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See `grpc.GenericRpcHandler`."""
        method = handler_call_details.method
        found = self._wrapped.get(method)
        if found is None:
            handler = self._handlers.service(handler_call_details)
            if handler is None:
                return None
            behaviours = {
                name: self.wrap(behaviour, method) for name in _BEHAVIOURS if (behaviour := getattr(handler, name))
            }
            # A named tuple, which its stubs don't say.
            found = cast("grpc.RpcMethodHandler[Any, Any]", cast("Any", handler)._replace(**behaviours))
            self._wrapped[method] = found
        return found
