"""HTTP forward proxy for programs that only know proxy variables: CONNECT and `http://` URLs, by the broker's rules."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.egress.access import Access
from fumehood_server.egress.audit_record import AuditRecord
from fumehood_server.egress.broker import Broker
from fumehood_server.egress.errors import EgressError, EgressRefusedError, Reason
from fumehood_server.egress.messages import MAX_PIECE_BYTES, CurrentOrigin, EgressRequest, RequestOrigin
from fumehood_server.egress.proxy_connection import ProxyConnection, ProxyRequest
from fumehood_server.egress.stream import Stream, TcpStream
from fumehood_server.egress.tunnel import tunnel
from fumehood_server.egress.url import split_authority

_MAX_CONNECTIONS = 32
"""Served at once on one relay. As many more are answered 503, the rest is reset."""
_HEAD_TIMEOUT_S = 10.0
"""For a request's head to arrive. The program is on this machine: only one that stalls on purpose takes longer."""


class Relay:
    """The `RelayServer`, on asyncio's streams."""

    def __init__(
        self, broker: Broker, *, max_connections: int = _MAX_CONNECTIONS, head_timeout_s: float = _HEAD_TIMEOUT_S
    ) -> None:
        """Go out through `broker`."""
        self._broker = broker
        self._max_connections = max_connections
        self._head_timeout_s = head_timeout_s

    @asynccontextmanager
    async def serve(
        self, listener: socket.socket, access: Access, current_origin: CurrentOrigin
    ) -> AsyncIterator[None]:
        """See `RelayServer`."""
        served: set[asyncio.Task[None]] = set()
        refused: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stream = TcpStream(reader, writer)
            if len(served) < self._max_connections:
                tasks, work = served, self._serve_one(stream, access, current_origin)
            elif len(refused) < self._max_connections:
                tasks, work = refused, self._refuse_busy(stream, access, current_origin())
            else:
                stream.abort()
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

    async def _serve_one(self, stream: Stream, access: Access, current_origin: CurrentOrigin) -> None:
        limits = access.limits
        turns = self._broker.turns.of(current_origin().plugin)
        connection = ProxyConnection(stream, turns, max_head_bytes=limits.max_head_bytes)
        try:
            await self._broker.wait_for_rate(access, current_origin())
            request = await self._read_head(connection, current_origin)
            if request is not None and request.method == "CONNECT":
                await self._connect(connection, request, access, current_origin())
            elif request is not None:
                async with asyncio.timeout(limits.timeout_s + self._head_timeout_s):
                    await self._forward(connection, request, access, current_origin())
            await stream.close_gracefully()
        except (OSError, TimeoutError):
            return  # the program left, or did not read its response; the event has been emitted
        finally:
            stream.abort()

    async def _read_head(self, connection: ProxyConnection, current_origin: CurrentOrigin) -> ProxyRequest | None:
        try:
            async with asyncio.timeout(self._head_timeout_s):
                return await connection.read_request()
        except TimeoutError:
            problem = EgressRefusedError(Reason.PROXY_REQUEST_INVALID, "the request's head was not whole in time")
        except EgressRefusedError as error:
            problem = error
        AuditRecord(current_origin(), "", "").emit_event(self._broker.sink, error=problem, whole=False)
        await connection.send_error(problem)
        return None

    async def _connect(
        self, connection: ProxyConnection, request: ProxyRequest, access: Access, origin: RequestOrigin
    ) -> None:
        """Serve CONNECT: a tunnel to a granted host and port, whatever bytes it carries."""
        record = AuditRecord(origin, request.method, request.target)
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
            record.add_tunnel(str(host), port)
            outer = await self._broker.connector.connect(
                host, port, access, owner=origin.plugin, tls=False, on_dial=record.set_address
            )
            early = await connection.accept_tunnel()
            await tunnel(
                connection.stream,
                outer,
                record.byte_count,
                self._broker.turns.of(origin.plugin),
                early=early,
                max_bytes=limits.max_tunnel_bytes,
                timeout_s=limits.tunnel_timeout_s,
            )
            whole = True
        except EgressError as error:
            problem = error
        finally:
            record.emit_event(self._broker.sink, error=problem, whole=whole)
            if outer is not None and not whole:
                outer.abort()
        if problem is not None:
            await connection.send_error(problem)
        elif outer is not None:
            await outer.close_gracefully()

    async def _forward(
        self, connection: ProxyConnection, request: ProxyRequest, access: Access, origin: RequestOrigin
    ) -> None:
        """Serve a request for an `http://` URL through the broker. The program follows redirects and decodes bodies."""
        try:
            body = await self._read_body(connection, request, access, origin)
            asked = EgressRequest(request.method, request.target, request.headers, body, max_redirects=0, decode=False)
            async with self._broker.request(asked, access, origin, waited=True) as response:
                await connection.send_head(response.status, response.headers)
                async for piece in response.body():
                    await connection.send_body(piece)
                await connection.send_end()
        except EgressError as error:
            await connection.send_error(error)

    async def _read_body(
        self, connection: ProxyConnection, request: ProxyRequest, access: Access, origin: RequestOrigin
    ) -> bytes:
        try:
            _check_scheme(request.target)
            return await connection.read_body(access.limits.max_request_bytes)
        except BaseException as error:  # also when the program leaves in the middle: each request is one event
            problem = error if isinstance(error, EgressRefusedError) else None
            AuditRecord(origin, request.method, request.target).emit_event(
                self._broker.sink, error=problem, whole=False
            )
            raise

    async def _refuse_busy(self, stream: Stream, access: Access, origin: RequestOrigin) -> None:
        problem = EgressRefusedError(Reason.RELAY_BUSY, f"more than {self._max_connections} connections at once")
        try:
            await self._broker.wait_for_rate(access, origin)
            AuditRecord(origin, "", "").emit_event(self._broker.sink, error=problem, whole=False)
            await ProxyConnection(stream, self._broker.turns.of(origin.plugin), max_head_bytes=0).send_error(problem)
            await stream.close_gracefully()
        except OSError:
            return
        finally:
            stream.abort()


def _check_scheme(target: str) -> None:
    scheme = target.partition("://")[0].lower()
    if scheme == "https":
        raise EgressRefusedError(Reason.SCHEME_NOT_ALLOWED, "https goes through CONNECT")
    if scheme != "http":
        raise EgressRefusedError(Reason.PROXY_REQUEST_INVALID, "the request line names no http:// URL")
