"""Counts gRPC requests: each method's handler, wrapped, where the operator asks for metrics."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from fumehood_server.errors import RefusalReason
from fumehood_server.rpc.wrapped_handlers import Answer, Context, Method, WrappedHandlers
from fumehood_server.telemetry import SidecarMetrics

_NAMES: dict[object, str] = {code.value[0]: code.name for code in grpc.StatusCode}
_DETAILS = "grpc-status-details-bin"


class ObservedHandlers(WrappedHandlers):
    """The handlers of one service. Only methods that it has are counted."""

    def __init__(self, handlers: grpc.GenericRpcHandler[Any, Any], metrics: SidecarMetrics) -> None:
        """Count in `metrics`."""
        super().__init__(handlers)
        self._metrics = metrics

    def wrap(self, behaviour: Method[Answer], method: str) -> Method[Answer]:
        """Count each request with its status."""
        metrics, name = self._metrics, method.removeprefix("/")

        async def observed(request: Any, context: Context) -> Answer:  # noqa: ANN401 - what gRPC hands to the method
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
                metrics.rpc.record(time.monotonic() - began, "grpc", name, code)

        return observed


def _code(context: Context) -> str:
    code: object = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")


def _reason(context: Context) -> str:
    """The reason in the `ErrorInfo` of the status that a request was ended with."""
    for key, value in context.trailing_metadata() or ():
        if key == _DETAILS:
            for detail in Status.FromString(cast("bytes", value)).details:
                info = ErrorInfo()
                if detail.Unpack(info) and info.reason in RefusalReason.__members__:
                    return str(info.reason)
    return "_OTHER"
