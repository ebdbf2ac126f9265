"""Egress broker over h11: checks and performs each request in the order of docs/egress.md."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.egress.access import ALL_METHODS, Access, EgressLimits
from fumehood_server.egress.audit_record import AuditRecord
from fumehood_server.egress.byte_count import CountedStream
from fumehood_server.egress.connector import Connector
from fumehood_server.egress.dial import TcpDialler
from fumehood_server.egress.errors import EgressError, EgressFailedError, EgressRefusedError, Reason
from fumehood_server.egress.events import EventSink, log_event
from fumehood_server.egress.exchange import CheckedRequest, Exchange, ResponseHead
from fumehood_server.egress.headers import checked_headers
from fumehood_server.egress.messages import EgressRequest, EgressResponse, Headers, RequestOrigin
from fumehood_server.egress.own_listeners import OwnListeners
from fumehood_server.egress.rate_limiter import RateLimiter
from fumehood_server.egress.redirects import next_request
from fumehood_server.egress.resolver import Resolver, SystemResolver
from fumehood_server.egress.response import StreamedResponse, has_body
from fumehood_server.egress.stream import Dialler
from fumehood_server.egress.turns import Turns
from fumehood_server.egress.url import parse_url
from fumehood_server.model.tool import MAX_TIMEOUT_S

_DEFAULTS = (("accept", "*/*"), ("user-agent", "fumehood"))


class Broker:
    """The `EgressBroker`. Each hop of a request has a connection of its own; none is pooled, no cookie is kept."""

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        dialler: Dialler | None = None,
        sink: EventSink = log_event,
        own: OwnListeners | None = None,
    ) -> None:
        """Without arguments: the system's resolver, the network, the log. `own` is never dialled."""
        self.connector = Connector(resolver or SystemResolver(), dialler or TcpDialler(), own)
        self.sink = sink
        self.turns = Turns()
        self._rate_limiters: defaultdict[str, RateLimiter] = defaultdict(
            RateLimiter
        )  # by plugin: bounded by the configuration

    async def wait_for_rate(self, access: Access, origin: RequestOrigin) -> None:
        """Wait until the plugin's rate allows its next request."""
        await self._rate_limiters[origin.plugin].wait_for_slot(access.limits.max_requests_per_s)

    @asynccontextmanager
    async def request(
        self, request: EgressRequest, access: Access, origin: RequestOrigin, *, waited: bool = False
    ) -> AsyncIterator[EgressResponse]:
        """See `EgressBroker`. `waited` says that `wait_for_rate` was awaited for this request."""
        record = AuditRecord(origin, request.method, request.url)
        error: EgressError | None = None
        response: StreamedResponse | None = None
        try:
            response = await self._respond(request, access, origin, record, waited=waited)
            yield response
        except EgressError as problem:
            error = problem
            raise
        finally:
            # The event first: closing can be cancelled, the event must not be.
            try:
                if response is not None:
                    error = response.error
                record.emit_event(self.sink, error=error, whole=response is not None and response.ended)
            finally:
                if response is not None:
                    await response.close()

    async def _respond(
        self, request: EgressRequest, access: Access, origin: RequestOrigin, record: AuditRecord, *, waited: bool
    ) -> StreamedResponse:
        _check_timeout(request.timeout_s)
        limits = access.limits.lowered(
            timeout_s=request.timeout_s,
            max_response_bytes=request.max_response_bytes,
            max_redirects=request.max_redirects,
        )
        deadline_s = asyncio.get_running_loop().time() + limits.timeout_s
        redirects = 0
        try:
            async with asyncio.timeout_at(deadline_s):
                if not waited:
                    await self.wait_for_rate(access, origin)
                outgoing = _checked_request(request, access)
                while True:
                    exchange, head = await self._exchange(outgoing, access, origin, record)
                    following = await _followed_redirect(exchange, outgoing, head, redirects, limits)
                    if following is None:
                        break
                    redirects += 1
                    outgoing = following
        except TimeoutError:
            raise EgressFailedError(Reason.TIMEOUT, f"no response within {limits.timeout_s:g} s") from None
        return StreamedResponse(
            exchange,
            head,
            outgoing.url,
            redirects=redirects,
            has_body=has_body(outgoing.method, head.status),
            decode=request.decode,
            limits=limits,
            deadline_s=deadline_s,
        )

    async def _exchange(
        self, outgoing: CheckedRequest, access: Access, origin: RequestOrigin, record: AuditRecord
    ) -> tuple[Exchange, ResponseHead]:
        url = outgoing.url
        record.add_hop(url)
        access.check_method(outgoing.method)
        stream = await self.connector.connect(
            url.host, url.port, access, owner=origin.plugin, tls=url.scheme == "https", on_dial=record.set_address
        )
        counted = CountedStream(stream, record.byte_count, access.limits.max_received_bytes)
        exchange = Exchange(counted, self.turns.of(origin.plugin), max_head_bytes=access.limits.max_head_bytes)
        try:
            head = await exchange.send_request(outgoing)
        except BaseException:
            await exchange.close()
            raise
        record.set_status(head.status)
        return exchange, head


async def _followed_redirect(
    exchange: Exchange, outgoing: CheckedRequest, head: ResponseHead, redirects: int, limits: EgressLimits
) -> CheckedRequest | None:
    """The request that a redirect asks for, with the exchange closed; None, with it open, for any other response."""
    if not limits.max_redirects:
        return None
    try:
        following = next_request(outgoing, head)
        if following is not None and redirects == limits.max_redirects:
            raise EgressRefusedError(Reason.TOO_MANY_REDIRECTS, f"more than {limits.max_redirects} redirects")
    except EgressError:
        await exchange.close()
        raise
    if following is not None:
        await exchange.close()
    return following


def _check_timeout(timeout_s: float | None) -> None:
    # Refused, and not clamped to the cap: a NaN or a negative timeout is a mistake of the plugin's.
    if timeout_s is not None and not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise EgressRefusedError(
            Reason.BOUND_INVALID,
            f"the request's timeout is more than 0 and at most {MAX_TIMEOUT_S:g} s, not {timeout_s:g} s",
        )


def _checked_request(request: EgressRequest, access: Access) -> CheckedRequest:
    """The request, if its own parts are sound. The connector checks the host of every hop."""
    access.check_method(request.method)
    url = parse_url(request.url)
    limits = access.limits
    headers = checked_headers(
        request.headers, max_bytes=limits.max_head_bytes, any_method=access.methods == ALL_METHODS
    )
    if len(request.body) > limits.max_request_bytes:
        raise EgressRefusedError(
            Reason.REQUEST_TOO_LARGE, f"the body has {len(request.body)} bytes; at most {limits.max_request_bytes} go"
        )
    if request.body and request.method in {"GET", "HEAD"}:
        raise EgressRefusedError(Reason.METHOD_NOT_ALLOWED, f"a {request.method} request carries no body")
    return CheckedRequest(request.method, url, _with_default_headers(headers, decode=request.decode), request.body)


def _with_default_headers(headers: Headers, *, decode: bool) -> Headers:
    names = {name for name, _ in headers}
    wanted = (*_DEFAULTS, ("accept-encoding", "gzip, deflate")) if decode else ()
    return headers + tuple(field for field in wanted if field[0] not in names)
