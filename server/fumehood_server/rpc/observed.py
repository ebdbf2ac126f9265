"""Counts gRPC requests: each method's handler, wrapped, where the operator asks for metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from fumehood_server.errors import RefusalReason
from fumehood_server.telemetry import SidecarMetrics

_Answer = TypeVar("_Answer")
_Context = grpc.aio.ServicerContext[Any, Any]
_Method = Callable[[Any, _Context], Awaitable[_Answer]]

_NAMES: dict[object, str] = {code.value[0]: code.name for code in grpc.StatusCode}
_BEHAVIOURS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_DETAILS = "grpc-status-details-bin"


class ObservedHandlers(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs alone
    """The handlers of one service. Only methods that it has are counted."""

    def __init__(self, handlers: grpc.GenericRpcHandler[Any, Any], metrics: SidecarMetrics) -> None:
        """Count in `metrics`."""
        self._handlers = handlers
        self._metrics = metrics
        self._observed: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See `grpc.GenericRpcHandler`."""
        method = handler_call_details.method
        found = self._observed.get(method)
        if found is None:
            handler = self._handlers.service(handler_call_details)
            if handler is None:
                return None
            found = self._observed[method] = self._wrapped(handler, method.removeprefix("/"))
        return found

    def _wrapped(self, handler: grpc.RpcMethodHandler[Any, Any], method: str) -> grpc.RpcMethodHandler[Any, Any]:
        behaviours = {
            name: self._observing(behaviour, method) for name in _BEHAVIOURS if (behaviour := getattr(handler, name))
        }
        # A named tuple, which its stubs don't say.
        return cast("grpc.RpcMethodHandler[Any, Any]", cast("Any", handler)._replace(**behaviours))

    def _observing(self, behaviour: _Method[_Answer], method: str) -> _Method[_Answer]:
        metrics = self._metrics

        async def observed(request: Any, context: _Context) -> _Answer:  # noqa: ANN401 - what gRPC hands to the method
            began, code = time.monotonic(), "OK"
            try:
                return await behaviour(request, context)
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except grpc.aio.AbortError:
                code = _code(context)
                metrics.refusals.add(_reason(context))
                raise
            except BaseException:
                code = "UNKNOWN"
                raise
            finally:
                metrics.rpc.record(time.monotonic() - began, "grpc", method, code)

        return observed


def _code(context: _Context) -> str:
    code: object = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")


def _reason(context: _Context) -> str:
    """The reason in the `ErrorInfo` of the status that a request was ended with."""
    for key, value in context.trailing_metadata() or ():
        if key == _DETAILS:
            for detail in Status.FromString(cast("bytes", value)).details:
                info = ErrorInfo()
                if detail.Unpack(info) and info.reason in RefusalReason.__members__:
                    return str(info.reason)
    return "_OTHER"
