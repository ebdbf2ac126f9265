"""An HTTP proxy for programs that only know proxy variables: CONNECT, and `http://` URLs, by the broker's rules."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.egress.access import Access
from fumehood_server.egress.broker import Broker
from fumehood_server.egress.errors import EgressError, EgressRefusedError, Reason
from fumehood_server.egress.interface import Askers
from fumehood_server.egress.messages import MAX_PIECE_BYTES, Asker, EgressRequest
from fumehood_server.egress.proxy_wire import ProxyRequest, ProxyWire
from fumehood_server.egress.stream import Stream, TcpStream
from fumehood_server.egress.trail import Trail
from fumehood_server.egress.tunnel import tunnel
from fumehood_server.egress.url import split_authority

_MAX_CONNECTIONS = 32
"""Served at once on one relay. As many more are told to come again, the rest is cut off unheard."""
_HEAD_TIMEOUT_S = 10.0
"""For a request's head to be whole. The program is on this machine: only one that stalls on purpose takes longer."""


class Relay:
    """The `RelayServer`."""

    def __init__(
        self, broker: Broker, *, max_connections: int = _MAX_CONNECTIONS, head_timeout_s: float = _HEAD_TIMEOUT_S
    ) -> None:
        """Go out through `broker`."""
        self._broker = broker
        self._max_connections = max_connections
        self._head_timeout_s = head_timeout_s

    @asynccontextmanager
    async def serve(self, listener: socket.socket, access: Access, askers: Askers) -> AsyncIterator[None]:
        """See `RelayServer`."""
        served: set[asyncio.Task[None]] = set()
        refused: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stream = TcpStream(reader, writer)
            if len(served) < self._max_connections:
                tasks, work = served, self._serve_one(stream, access, askers)
            elif len(refused) < self._max_connections:
                tasks, work = refused, self._refuse_busy(stream, access, askers())
            else:
                stream.close()
                return
            task = asyncio.create_task(work, name="egress relay")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accepted, sock=listener, limit=MAX_PIECE_BYTES)
        try:
            yield
        finally:
            server.close()
            under_way = (*served, *refused)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _serve_one(self, stream: Stream, access: Access, askers: Askers) -> None:
        limits = access.limits
        wire = ProxyWire(stream, max_head_bytes=limits.max_head_bytes)
        try:
            await self._broker.turn(access, askers())
            request = await self._read_head(wire, askers)
            if request is not None and request.method == "CONNECT":
                await self._connect(wire, request, access, askers())
            elif request is not None:
                async with asyncio.timeout(limits.timeout_s + self._head_timeout_s):
                    await self._forward(wire, request, access, askers())
            await stream.finish()
        except (OSError, TimeoutError):
            return  # the program left, or would not take its answer; the event is made
        finally:
            stream.close()

    async def _read_head(self, wire: ProxyWire, askers: Askers) -> ProxyRequest | None:
        try:
            async with asyncio.timeout(self._head_timeout_s):
                return await wire.read_request()
        except TimeoutError:
            problem = EgressRefusedError(Reason.PROXY_REQUEST_INVALID, "the request's head was not whole in time")
        except EgressRefusedError as error:
            problem = error
        Trail(askers(), "", "").end(self._broker.sink, error=problem, whole=False)
        await wire.send_error(problem)
        return None

    async def _connect(self, wire: ProxyWire, request: ProxyRequest, access: Access, asker: Asker) -> None:
        """CONNECT: one connection to a granted host and port, with whatever bytes."""
        trail = Trail(asker, request.method, request.target)
        problem: EgressError | None = None
        whole = False
        outer: Stream | None = None
        limits = access.limits
        try:
            if not access.tunnels:
                raise EgressRefusedError(Reason.METHOD_NOT_ALLOWED, "CONNECT is not allowed at this level")
            host, port = split_authority(request.target)
            if port is None:
                raise EgressRefusedError(Reason.PROXY_REQUEST_INVALID, "CONNECT names no port")
            trail.tunnel(str(host), port)
            outer = await self._broker.gate.connect(
                host, port, access, owner=asker.plugin, tls=False, on_dial=trail.dialled
            )
            early = await wire.accept_tunnel()
            await tunnel(
                wire.stream,
                outer,
                trail.tally,
                early=early,
                max_bytes=limits.max_tunnel_bytes,
                timeout_s=limits.tunnel_timeout_s,
            )
            whole = True
        except EgressError as error:
            problem = error
        finally:
            trail.end(self._broker.sink, error=problem, whole=whole)
            if outer is not None and not whole:
                outer.close()
        if problem is not None:
            await wire.send_error(problem)
        elif outer is not None:
            await outer.finish()

    async def _forward(self, wire: ProxyWire, request: ProxyRequest, access: Access, asker: Asker) -> None:
        """A request for an `http://` URL: one of the broker's, with redirects and encodings left to the program."""
        try:
            body = await self._acceptable_body(wire, request, access, asker)
            asked = EgressRequest(request.method, request.target, request.headers, body, max_redirects=0, decode=False)
            async with self._broker.request(asked, access, asker, waited=True) as response:
                await wire.send_head(response.status, response.headers)
                async for piece in response.body():
                    await wire.send_body(piece)
                await wire.send_end()
        except EgressError as error:
            await wire.send_error(error)

    async def _acceptable_body(self, wire: ProxyWire, request: ProxyRequest, access: Access, asker: Asker) -> bytes:
        try:
            _check_scheme(request.target)
            return await wire.read_body(access.limits.max_request_bytes)
        except BaseException as error:  # also when the program leaves in the middle: each request is one event
            problem = error if isinstance(error, EgressRefusedError) else None
            Trail(asker, request.method, request.target).end(self._broker.sink, error=problem, whole=False)
            raise

    async def _refuse_busy(self, stream: Stream, access: Access, asker: Asker) -> None:
        problem = EgressRefusedError(Reason.RELAY_BUSY, f"more than {self._max_connections} connections at once")
        try:
            await self._broker.turn(access, asker)
            Trail(asker, "", "").end(self._broker.sink, error=problem, whole=False)
            await ProxyWire(stream, max_head_bytes=0).send_error(problem)
            await stream.finish()
        except OSError:
            return
        finally:
            stream.close()


def _check_scheme(target: str) -> None:
    scheme = target.partition("://")[0].lower()
    if scheme == "https":
        raise EgressRefusedError(Reason.SCHEME_NOT_ALLOWED, "https goes through CONNECT")
    if scheme != "http":
        raise EgressRefusedError(Reason.PROXY_REQUEST_INVALID, "the request line names no http:// URL")
