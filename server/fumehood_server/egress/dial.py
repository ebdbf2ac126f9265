"""TCP and TLS connections to exactly the address that was checked."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address

from fumehood_server.egress.addresses import IPAddress
from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.messages import MAX_PIECE_BYTES
from fumehood_server.egress.stream import Stream, TcpStream
from fumehood_server.egress.tls import TlsTrust
from fumehood_server.egress.tls_stream import TlsStream

_IPV4 = 4


class TcpDialler:
    """A `Dialler` over real sockets."""

    def __init__(self) -> None:
        """The trust store is read when it is first needed."""
        self._trust = TlsTrust()

    async def dial(self, address: IPAddress, port: int, *, tls_name: str | None) -> Stream:
        """See `Dialler`."""
        context = None if tls_name is None else await self._trust.context()
        sock = await _connected(address, port)
        stream = TcpStream(*await asyncio.open_connection(sock=sock, limit=MAX_PIECE_BYTES))
        if context is None or tls_name is None:
            return stream
        secured = TlsStream(stream, context, tls_name)
        try:
            await secured.handshake()
        except OSError as error:  # ssl.SSLError is one
            stream.abort()
            why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or "the handshake broke off"
            raise EgressFailedError(Reason.TLS_FAILED, f"TLS with {tls_name}, port {port}: {why}") from error
        except BaseException:
            stream.abort()
            raise
        return secured


async def _connected(address: IPAddress, port: int) -> socket.socket:
    """A connected socket. Made here, so that no library between here and the kernel can look a name up again."""
    sock = socket.socket(socket.AF_INET if address.version == _IPV4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
        _check_peer(sock, address, port)
    except OSError as error:
        sock.close()
        why = error.strerror or str(error)
        raise EgressFailedError(Reason.CONNECT_FAILED, f"{address} port {port} can't be reached: {why}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _check_peer(sock: socket.socket, address: IPAddress, port: int) -> None:
    """Refuse a peer other than the address that was checked. It differs only if a library or this module changes."""
    peer = sock.getpeername()
    if ip_address(peer[0]) != address or peer[1] != port:
        raise ConnectionError(f"connected to {peer[0]} port {peer[1]}")
