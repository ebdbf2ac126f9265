"""What the sidecar does for a running call that asks: its secrets and its requests of hosts, put together."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from fumehood_server.egress import (
    Access,
    Asker,
    EgressBroker,
    EgressError,
    EgressEvent,
    EgressLimits,
    EgressRequest,
    EgressResponse,
    EventSink,
    Outcome,
    access_for,
    log_event,
    open_broker,
    open_relay,
)
from fumehood_server.errors import PluginRequestError
from fumehood_server.model.plugin_requests import EgressUsage, InboundResponse, OutboundRequest, RequestingCall
from fumehood_server.secrets import SecretStore, SecretUnavailableError
from fumehood_server.workers.output.token_bucket import Allowance

if TYPE_CHECKING:
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers import LogSink, PluginLog

RELAY_LINES_BURST = 100
RELAY_LINES_PER_SECOND = 10.0
"""Lines of one plugin's log on what its relay refused. A program that asks on and on keeps the rest of it readable."""
_MAX_WHY = 200


class PluginRequests:
    """Answers what calls ask (`model.plugin_requests.PluginRequestHandler`)."""

    def __init__(
        self,
        secrets: SecretStore,
        logs: LogSink,
        *,
        limits: EgressLimits | None = None,
        private: tuple[IPv4Address | IPv6Address, ...] = (),
        sink: EventSink = log_event,
    ) -> None:
        """Take the parts that do the work. `logs` knows what was handed to whom; `sink` takes each request's event."""
        self._secrets = secrets
        self._logs = logs
        self._limits = limits or EgressLimits()
        self._private = tuple(map(str, private))
        self._sink = sink
        self._broker: EgressBroker | None = None
        self._accesses: dict[tuple[object, ...], Access] = {}
        self._relay_lines: dict[str, _RelayLines] = {}

    async def secret(self, caller: RequestingCall, name: str) -> bytes:
        """The value of a secret; see `PluginRequestHandler`."""
        if name not in caller.spec.secrets:
            raise SecretUnavailableError("secret_not_granted", f"{caller.tool} is not granted {name}", "")
        return await self._secrets.read(name)

    @asynccontextmanager
    async def http(self, caller: RequestingCall, ask: OutboundRequest) -> AsyncIterator[InboundResponse]:
        """Perform an HTTP request; see `PluginRequestHandler`."""
        request = EgressRequest(
            method=ask.method,
            url=ask.url,
            headers=ask.headers,
            body=ask.body,
            timeout_s=ask.timeout_s,
            max_response_bytes=ask.max_response_bytes,
            max_redirects=ask.max_redirects,
        )
        asker = CountedAsker(caller.spec.plugin, caller.tool, caller.call_id, caller.usage)
        try:
            async with self.broker.request(request, self.access(caller.spec), asker) as response:
                yield _Answer(response)
        except EgressError as error:
            raise _plugin_request_error(error) from error

    @asynccontextmanager
    async def relay(
        self, spec: WorkerSpec, listener: socket.socket, caller: Callable[[], RequestingCall | None]
    ) -> AsyncIterator[None]:
        """Serve programs that only know HTTP_PROXY; see `PluginRequestHandler`."""

        def asker() -> Asker:
            found = caller()
            if found is None:
                return RelayAsker(spec.plugin, "", "", EgressUsage())
            return RelayAsker(spec.plugin, found.tool, found.call_id, found.usage)

        async with open_relay(self.broker).serve(listener, self.access(spec), asker):
            yield

    @property
    def broker(self) -> EgressBroker:
        """The broker. Made when the first call asks, since it brings an HTTP library along."""
        if self._broker is None:
            self._broker = open_broker(self._take)
        return self._broker

    def access(self, spec: WorkerSpec) -> Access:
        """What a worker's calls may reach, and how much of it."""
        key = (spec.policy.level, spec.hosts, spec.deny_hosts)
        found = self._accesses.get(key)
        if found is None:
            found = self._accesses[key] = access_for(
                spec.policy.level,
                hosts=spec.hosts,
                deny_hosts=spec.deny_hosts,
                allow_private=self._private,
                limits=self._limits,
            )
        return found

    def _take(self, event: EgressEvent) -> None:
        """An event of the broker's: count its bytes, take secrets out of its texts, hand it on."""
        asker = event.asker
        if isinstance(asker, CountedAsker):
            asker.usage.sent_bytes += event.bytes_sent
            asker.usage.received_bytes += event.bytes_received
        redactor = self._logs.of(asker.plugin).redactor
        if redactor.active:
            text = redactor.text
            hops = tuple(replace(hop, path=text(hop.path), host=text(hop.host)) for hop in event.hops)
            event = replace(event, shown=text(event.shown), message=text(event.message), hops=hops)
        self._sink(event)
        if isinstance(asker, RelayAsker) and event.reason is not None:
            lines = self._relay_lines.get(asker.plugin)
            if lines is None:
                lines = self._relay_lines[asker.plugin] = _RelayLines(self._logs.of(asker.plugin))
            lines.write(event)


class CountedAsker(Asker):
    """An asker whose requests' bytes are counted. To events it is what every asker is."""

    __slots__ = ("usage",)
    usage: EgressUsage

    def __init__(self, plugin: str, tool: str, call_id: str, usage: EgressUsage) -> None:
        """Add to `usage`."""
        super().__init__(plugin, tool, call_id)
        object.__setattr__(self, "usage", usage)


class RelayAsker(CountedAsker):
    """One behind a relay: the tool is told a status at best, so that its log has to say what was refused."""

    __slots__ = ()


class _RelayLines:
    """What one plugin's relay refused or could not do, in the plugin's log. The sidecar's has the events."""

    def __init__(self, log: PluginLog) -> None:
        self._log = log
        self._allowance = Allowance(burst=RELAY_LINES_BURST, per_second=RELAY_LINES_PER_SECOND, clock=time.monotonic)
        self._dropped = 0

    def write(self, event: EgressEvent) -> None:
        if not self._allowance.take():
            self._dropped += 1
            return
        refused = event.outcome is Outcome.REFUSED
        hop = event.hops[-1] if event.hops else None
        where = f"{hop.host} port {hop.port}" if hop is not None else event.shown
        asked = f"{event.method} {where}".strip() or "a request"
        self._log.write(
            "sidecar",
            "warning" if refused else "info",
            f"the relay {'refused' if refused else 'failed'} {asked}: {event.reason}, {event.message[:_MAX_WHY]}",
            call_id=event.asker.call_id,
            dropped=self._dropped,
            forward=False,
        )
        self._dropped = 0


class _Answer:
    """A response of the broker's, as the workers know one."""

    def __init__(self, response: EgressResponse) -> None:
        self._response = response
        self.status = response.status
        self.url = response.url
        self.headers = response.headers
        self.redirects = response.redirects

    async def body(self) -> AsyncIterator[bytes]:
        """See `InboundResponse`."""
        try:
            async for piece in self._response.body():
                yield piece
        except EgressError as error:
            raise _plugin_request_error(error) from error


def _plugin_request_error(error: EgressError) -> PluginRequestError:
    return PluginRequestError(error.reason.value, error.message, retryable=error.retryable)
