"""The broker: performs requests by the rules of docs/egress.md, in the order told there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.egress.access import ANY, Access, EgressLimits
from fumehood_server.egress.dial import TcpDialler
from fumehood_server.egress.errors import EgressError, EgressFailedError, EgressRefusedError, Reason
from fumehood_server.egress.events import EventSink, log_event
from fumehood_server.egress.exchange import Exchange, Head, Outgoing
from fumehood_server.egress.gate import Gate
from fumehood_server.egress.headers import checked
from fumehood_server.egress.messages import Asker, EgressRequest, EgressResponse, Headers
from fumehood_server.egress.pace import Pace
from fumehood_server.egress.redirects import next_request
from fumehood_server.egress.resolver import Resolver, SystemResolver
from fumehood_server.egress.response import StreamedResponse, has_body
from fumehood_server.egress.stream import Dialler, MeteredStream
from fumehood_server.egress.trail import Trail
from fumehood_server.egress.url import parse_url
from fumehood_server.model.tool import MAX_TIMEOUT_S

_DEFAULTS = (("accept", "*/*"), ("user-agent", "fumehood"))


class Broker:
    """The `EgressBroker`: each request has connections of its own, one for each hop, and nothing is kept between."""

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        dialler: Dialler | None = None,
        sink: EventSink = log_event,
    ) -> None:
        """Without arguments: the system's resolver, the network, the log."""
        self.gate = Gate(resolver or SystemResolver(), dialler or TcpDialler())
        self.sink = sink
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)  # by plugin: as many as are configured

    async def turn(self, access: Access, asker: Asker) -> None:
        """Wait until the plugin may make its next request."""
        await self._paces[asker.plugin].turn(access.limits.max_requests_per_s)

    @asynccontextmanager
    async def request(
        self, request: EgressRequest, access: Access, asker: Asker, *, waited: bool = False
    ) -> AsyncIterator[EgressResponse]:
        """See `EgressBroker`. `waited` says that the request has had its turn."""
        trail = Trail(asker, request.method, request.url)
        error: EgressError | None = None
        response: StreamedResponse | None = None
        try:
            response = await self._respond(request, access, asker, trail, waited=waited)
            yield response
        except EgressError as problem:
            error = problem
            raise
        finally:
            # The event first: closing can be cancelled, the event must not be.
            try:
                if response is not None:
                    error = response.error
                trail.end(self.sink, error=error, whole=response is not None and response.ended)
            finally:
                if response is not None:
                    await response.close()

    async def _respond(
        self, request: EgressRequest, access: Access, asker: Asker, trail: Trail, *, waited: bool
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
                    await self.turn(access, asker)
                outgoing = _checked(request, access)
                while True:
                    exchange, head = await self._exchange(outgoing, access, asker, trail)
                    following = await _following(exchange, outgoing, head, redirects, limits)
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

    async def _exchange(self, outgoing: Outgoing, access: Access, asker: Asker, trail: Trail) -> tuple[Exchange, Head]:
        url = outgoing.url
        trail.hop(url)
        access.check_method(outgoing.method)
        stream = await self.gate.connect(
            url.host, url.port, access, owner=asker.plugin, tls=url.scheme == "https", on_dial=trail.dialled
        )
        metered = MeteredStream(stream, trail.tally, access.limits.max_received_bytes)
        exchange = Exchange(metered, max_head_bytes=access.limits.max_head_bytes)
        try:
            head = await exchange.start(outgoing)
        except BaseException:
            await exchange.close()
            raise
        trail.answered(head.status)
        return exchange, head


async def _following(
    exchange: Exchange, outgoing: Outgoing, head: Head, redirects: int, limits: EgressLimits
) -> Outgoing | None:
    """The next request, with the exchange closed; or None, with it open, if this response is the one."""
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
    # Not taken as a cap's value: whoever sends a NaN or less than nothing has reckoned wrong, and is told.
    if timeout_s is not None and not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise EgressRefusedError(
            Reason.BOUND_INVALID,
            f"the request's timeout is more than 0 and at most {MAX_TIMEOUT_S:g} s, not {timeout_s:g} s",
        )


def _checked(request: EgressRequest, access: Access) -> Outgoing:
    """The request, if its own parts are sound. The host is judged later, at the gate, on every hop."""
    access.check_method(request.method)
    url = parse_url(request.url)
    limits = access.limits
    headers = checked(request.headers, max_bytes=limits.max_head_bytes, any_method=access.methods == ANY)
    if len(request.body) > limits.max_request_bytes:
        raise EgressRefusedError(
            Reason.REQUEST_TOO_LARGE, f"the body has {len(request.body)} bytes; at most {limits.max_request_bytes} go"
        )
    if request.body and request.method in {"GET", "HEAD"}:
        raise EgressRefusedError(Reason.METHOD_NOT_ALLOWED, f"a {request.method} request carries no body")
    return Outgoing(request.method, url, _completed(headers, decode=request.decode), request.body)


def _completed(headers: Headers, *, decode: bool) -> Headers:
    names = {name for name, _ in headers}
    wanted = (*_DEFAULTS, ("accept-encoding", "gzip, deflate")) if decode else ()
    return headers + tuple(field for field in wanted if field[0] not in names)
