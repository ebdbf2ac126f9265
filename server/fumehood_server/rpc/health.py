"""`grpc.health.v1.Health`: the sidecar, its services, the journal, `mcp`, and each plugin as `plugin/NAME`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import grpc
from grpc_health.v1 import health_pb2

from fumehood_server.rpc.drain import Drain
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.reading import RequestReader, Service
from fumehood_server.rpc.stream_slots import StreamSlots
from fumehood_server.rpc.unread import UnreadAnswers

POLL_S = 5.0
"""How often a watched plugin is looked at for what changes by itself, such as a program that was removed."""

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

MAX_WATCHES = 1024
MAX_WATCHES_OF_CONNECTION = 64
"""Open at a time. They are open to callers that are not known, so that nothing else bounds them. Of each, gRPC takes
64 KiB that it is sent and nobody reads."""

MAX_ARRIVING = 32
"""Requests that are read at a time: anybody may leave 2 MiB half-sent with each."""
ARRIVES_WITHIN_S = 10.0
"""A request fits in one packet."""

_MAX_REQUEST_BYTES = 512
"""It names a service."""

PLUGIN_PREFIX = "plugin/"
JOURNAL = "journal"
MCP = "mcp"

_Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, bytes]


class HealthService:
    """Says whether services can be called, looked up when it is asked."""

    def __init__(
        self,
        plugin_serves: Callable[[str], bool | None],
        journal_serves: Callable[[], bool],
        shutdown: Drain,
        *,
        never: frozenset[str] = frozenset(),
        mcp_serves: Callable[[], bool | None] = lambda: None,
    ) -> None:
        """`plugin_serves` is None for a plugin that the configuration doesn't name; `shutdown` ends the watches.

        Services that are in `never` refuse every request as this sidecar is configured. `mcp_serves` is None
        where MCP clients are not served over HTTP.
        """
        self._watches = StreamSlots("watches of health", total=MAX_WATCHES, connection=MAX_WATCHES_OF_CONNECTION)
        self._never = never
        self._shutdown = shutdown
        self._services = frozenset({""})
        self._plugin_serves = plugin_serves
        self._journal_serves = journal_serves
        self._mcp_serves = mcp_serves
        self._draining = False
        self._changed = asyncio.Event()

    def serve(self, services: Iterable[str]) -> None:
        """Say of these services that they serve."""
        self._services |= frozenset(services)

    def service(self, unread: UnreadAnswers) -> Service:
        """The service, for one address or for all. It has a reader of its own, since anybody may use it.

        `unread` counts its answers.
        """
        reader = RequestReader(unread, max_arriving=MAX_ARRIVING, within_s=ARRIVES_WITHIN_S)
        request = health_pb2.HealthCheckRequest
        methods = {
            "Check": reader.unary(self.check, request, max_bytes=_MAX_REQUEST_BYTES),
            "Watch": reader.streaming(self.watch, request, max_bytes=_MAX_REQUEST_BYTES),
        }
        return Service(SERVICE, methods)

    def changed(self) -> None:
        """Tell watchers at once that something may have changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def drain(self) -> None:
        """Nothing is serving from now on."""
        self._draining = True
        self.changed()

    async def check(self, request: health_pb2.HealthCheckRequest, context: _Context) -> bytes:
        """The status now. NOT_FOUND for a service that isn't here."""
        status = self._status(request.service)
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _message(status)

    async def watch(self, request: health_pb2.HealthCheckRequest, context: _Context) -> None:
        """The status now and whenever it changes."""
        with self._watches.take(context.peer()), hang_ups_end_it():
            await self._shutdown.until_end(self._watch(request, context))

    async def _watch(self, request: health_pb2.HealthCheckRequest, context: _Context) -> None:
        last = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != last:
                await context.write(_message(status))
                last = status
            try:
                async with asyncio.timeout(POLL_S if self._changes_by_itself(request.service) else None):
                    await changed.wait()
            except TimeoutError:
                continue

    @staticmethod
    def _changes_by_itself(service: str) -> bool:
        return service == JOURNAL or service.startswith(PLUGIN_PREFIX)

    def _status(self, service: str) -> int:
        response = health_pb2.HealthCheckResponse
        if service.startswith(PLUGIN_PREFIX):
            serves = self._plugin_serves(service.removeprefix(PLUGIN_PREFIX))
        elif service == JOURNAL:
            serves = self._journal_serves()
        elif service == MCP:
            serves = self._mcp_serves()
        else:
            serves = service not in self._never if service in self._services else None
        if serves is None:
            status = response.SERVICE_UNKNOWN
        else:
            status = response.SERVING if serves and not self._draining else response.NOT_SERVING
        return int(status)


def _message(status: int) -> bytes:
    message: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    return message
