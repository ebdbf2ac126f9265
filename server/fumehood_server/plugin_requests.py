"""Requests of plugins to the sidecar: secrets from the store, HTTP through the egress broker."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood_server.egress import (
    Access,
    EgressBroker,
    EgressError,
    EgressEvent,
    EgressLimits,
    EgressRequest,
    EgressResponse,
    EventSink,
    Headers,
    Outcome,
    OwnListeners,
    RequestOrigin,
    access_for,
    import_broker,
    log_event,
    open_broker,
    open_relay,
    parse_granted,
    parse_url,
)
from fumehood_server.errors import PluginRequestError
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.model.http_answers import AnswerDigest
from fumehood_server.model.plugin_requests import (
    MAX_ANSWERS,
    EgressUsage,
    InboundResponse,
    OutboundRequest,
    RefusedHost,
    RequestingCall,
)
from fumehood_server.payload_redaction import PayloadRedaction
from fumehood_server.request_records import RequestRecords
from fumehood_server.secrets import Redactor, SecretStore, SecretUnavailableError
from fumehood_server.token_bucket import TokenBucket

if TYPE_CHECKING:
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers import LogSink, PluginLog

RELAY_LINES_BURST = 100
RELAY_LINES_PER_SECOND = 10.0
"""Rate of these lines in one plugin's log: a program that asks on and on must not flood it."""
MAX_NAME_CHARACTERS = 64
"""Of a secret's name in a message: as many as one can have."""
_MAX_MESSAGE_CHARS = 200


class PluginRequests:
    """The `PluginRequestHandler`: checks the call's grants, counts its bytes, redacts secrets from its events."""

    def __init__(
        self,
        secrets: SecretStore,
        logs: LogSink,
        *,
        limits: EgressLimits | None = None,
        sink: EventSink = log_event,
        records: RequestRecords | None = None,
        propagate_to: Sequence[str] = (),
        own: OwnListeners | None = None,
    ) -> None:
        """`logs` has the redactor of each plugin. `sink` and `records` take the event of each request.

        `own` is where the sidecar listens: nothing is asked there for a plugin.

        Requests to the hosts of `propagate_to`, as an operator writes them, carry the trace of their call.
        """
        self._secrets = secrets
        self._logs = logs
        self._limits = limits or EgressLimits()
        self._sink = sink
        self._records = records or RequestRecords(NO_JOURNAL)
        self._redaction = PayloadRedaction()
        self._own = own or OwnListeners()
        self._propagate_to = tuple(parse_granted(each) for each in propagate_to)
        self._broker = _Broker(self._record_event, self._own)
        self._accesses: dict[tuple[object, ...], Access] = {}
        self._relay_lines: dict[str, _RelayLines] = {}

    def take_up(self, secrets: SecretStore, limits: EgressLimits) -> None:
        """Answer by these from now on. What calls are granted stands in their worker's spec."""
        self._secrets, self._limits, self._accesses = secrets, limits, {}

    def answering_by(self, secrets: SecretStore, limits: EgressLimits) -> PluginRequests:
        """A second one with these secrets and limits, which shares the rest, for plugins asked before `take_up`."""
        other = copy(self)
        other.take_up(secrets, limits)
        return other

    async def secret(self, call: RequestingCall, name: str) -> bytes:
        """The value of a secret; see `PluginRequestHandler`."""
        call.usage.requests += 1
        if name not in call.spec.secrets:
            asked = self._logs.of(call.spec.plugin).redactor.text(name)
            self._records.secret(call, asked, "secret_not_granted")
            name = name[:MAX_NAME_CHARACTERS]
            problem = (
                f'the secret "{name}" is not granted to this tool: it takes both requires = ["secret:{name}"] and '
                f"`secrets` in [plugin.tools.{call.tool}]"
            )
            raise SecretUnavailableError("secret_not_granted", problem, "")
        try:
            value = await self._secrets.read_secret(name)
        except SecretUnavailableError as error:
            self._records.secret(call, name, error.code)
            raise
        self._records.secret(call, name)
        return value

    async def start_secrets(self, spec: WorkerSpec) -> Mapping[str, bytes]:
        """The secrets that a process gets with its `Hello`; see `PluginRequestHandler`."""
        values = {}
        for name in spec.secrets:
            try:
                values[name] = await self._secrets.read_secret(name)
            except SecretUnavailableError as error:
                self._records.start_secret(spec.plugin, name, error.code)
                raise
            self._records.start_secret(spec.plugin, name)
        return values

    async def redactor(self, plugin: str, names: Sequence[str]) -> Redactor:
        """Takes the values of these secrets, which the plugin may read, out of what is recorded."""
        return await self._redaction.redactor(self._secrets, plugin, names)

    @asynccontextmanager
    async def http(self, call: RequestingCall, request: OutboundRequest) -> AsyncIterator[InboundResponse]:
        """Perform an HTTP request; see `PluginRequestHandler`."""
        outgoing = EgressRequest(
            method=request.method,
            url=request.url,
            headers=self._traced(call, request),
            body=request.body,
            timeout_s=request.timeout_s,
            max_response_bytes=request.max_response_bytes,
            max_redirects=request.max_redirects,
        )
        origin = CountedOrigin(call.spec.plugin, call)
        try:
            broker = await self.broker()
            async with broker.request(outgoing, self.access_of(call.spec), origin) as response:
                yield _Response(response, AnswerDigest(f"{request.method} {request.url}", response.status), call.usage)
        except EgressError as error:
            raise _plugin_request_error(error) from error

    @asynccontextmanager
    async def relay(
        self, spec: WorkerSpec, listener: socket.socket, current_call: Callable[[], RequestingCall | None]
    ) -> AsyncIterator[None]:
        """Serve programs that only know HTTP_PROXY; see `PluginRequestHandler`."""

        def current_origin() -> RequestOrigin:
            return RelayOrigin(spec.plugin, current_call())

        async with open_relay(await self.broker()).serve(listener, self.access_of(spec), current_origin):
            yield

    def _traced(self, call: RequestingCall, request: OutboundRequest) -> Headers:
        """The header fields, with the trace's where the operator says so. A redirect to another origin drops them."""
        if call.trace is None or not self._propagate_to:
            return request.headers
        try:
            url = parse_url(request.url)
        except EgressError:
            return request.headers  # refused by the broker
        if not any(entry.covers(url.host, url.port) for entry in self._propagate_to):
            return request.headers
        fields = tuple(field for field in request.headers if field[0].lower() not in {"traceparent", "tracestate"})
        state = (("tracestate", call.trace.state),) if call.trace.state else ()
        return (*fields, ("traceparent", call.trace.traceparent), *state)

    async def broker(self) -> EgressBroker:
        """The one broker of the sidecar."""
        return await self._broker.opened()

    def access_of(self, spec: WorkerSpec) -> Access:
        """What a worker's calls may reach, and how much of it."""
        key = (spec.policy.level, spec.hosts, spec.deny_hosts, spec.private)
        found = self._accesses.get(key)
        if found is None:
            found = self._accesses[key] = access_for(
                spec.policy.level,
                hosts=spec.hosts,
                deny_hosts=spec.deny_hosts,
                allow_private=spec.private,
                limits=self._limits,
            )
        return found

    def _record_event(self, event: EgressEvent) -> None:
        """Count an event's bytes, redact secrets from its texts, and pass it to the sink."""
        origin = event.origin
        call = origin.call if isinstance(origin, CountedOrigin) else None
        if call is not None:
            call.usage.sent_bytes += event.bytes_sent
            call.usage.received_bytes += event.bytes_received
        redactor = self._logs.of(origin.plugin).redactor
        if redactor.active:
            text = redactor.text
            hops = tuple(replace(hop, path=text(hop.path), host=text(hop.host)) for hop in event.hops)
            shown, message, method = text(event.shown), text(event.message), text(event.method)
            event = replace(event, shown=shown, message=message, method=method, hops=hops)
        self._sink(event)
        self._records.egress(event, call)
        if isinstance(origin, RelayOrigin) and event.reason is not None:
            if call is not None and event.outcome is Outcome.REFUSED and event.hops:
                hop = event.hops[-1]
                call.usage.refuse(RefusedHost(hop.host[:_MAX_MESSAGE_CHARS], hop.port, event.reason.value))
            lines = self._relay_lines.get(origin.plugin)
            if lines is None:
                lines = self._relay_lines[origin.plugin] = _RelayLines(self._logs.of(origin.plugin))
            lines.write(event)


class CountedOrigin(RequestOrigin):
    """An origin with the call, to whose usage its requests and their bytes are added. Log lines don't show that."""

    __slots__ = ("call",)
    call: RequestingCall | None

    def __init__(self, plugin: str, call: RequestingCall | None) -> None:
        """None: nobody knows for which call."""
        super().__init__(plugin, "" if call is None else call.tool, "" if call is None else call.call_id)
        object.__setattr__(self, "call", call)

    def count_request(self) -> None:
        """See `RequestOrigin`."""
        if self.call is not None:
            self.call.usage.requests += 1


class RelayOrigin(CountedOrigin):
    """The origin of a relay's request. The program sees a status at most, so the plugin's log says what was refused."""

    __slots__ = ()


class _RelayLines:
    """Writes what one plugin's relay refused or failed to do to the plugin's log, up to a rate."""

    def __init__(self, log: PluginLog) -> None:
        self._log = log
        self._allowance = TokenBucket(burst=RELAY_LINES_BURST, per_second=RELAY_LINES_PER_SECOND, clock=time.monotonic)
        self._dropped = 0

    def write(self, event: EgressEvent) -> None:
        if not self._allowance.take():
            self._dropped += 1
            return
        refused = event.outcome is Outcome.REFUSED
        hop = event.hops[-1] if event.hops else None
        where = f"{hop.host} port {hop.port}" if hop is not None else event.shown
        message = event.message[:_MAX_MESSAGE_CHARS]
        asked = f"{event.method} {where}".strip() or "a request"
        self._log.write(
            "sidecar",
            "warning" if refused else "info",
            f"the relay {'refused' if refused else 'failed'} {asked}: {event.reason}, {message}",
            call_id=event.origin.call_id,
            dropped=self._dropped,
            forward=False,
        )
        self._dropped = 0


class _Broker:
    """The broker, opened at the first request, since that imports an HTTP library: in a thread, the loop goes on."""

    def __init__(self, sink: EventSink, own: OwnListeners) -> None:
        self._sink = sink
        self._own = own
        self._opened: EgressBroker | None = None

    async def opened(self) -> EgressBroker:
        if self._opened is None:
            await asyncio.to_thread(import_broker)
        if self._opened is None:
            self._opened = open_broker(self._sink, own=self._own)
        return self._opened


class _Response:
    """The broker's response as an `InboundResponse`: its errors are `PluginRequestError`s."""

    def __init__(self, response: EgressResponse, digest: AnswerDigest, usage: EgressUsage) -> None:
        self._response = response
        self._digest = digest
        self._usage = usage
        self.status = response.status
        self.url = response.url
        self.headers = response.headers
        self.redirects = response.redirects

    async def body(self) -> AsyncIterator[bytes]:
        """See `InboundResponse`."""
        try:
            async for piece in self._response.body():
                self._digest.update(piece)
                yield piece
        except EgressError as error:
            raise _plugin_request_error(error) from error
        if self._usage.answers.total() < MAX_ANSWERS:
            self._usage.answers[self._digest.digest()] += 1


def _plugin_request_error(error: EgressError) -> PluginRequestError:
    return PluginRequestError(error.reason.value, error.message, retryable=error.retryable)
