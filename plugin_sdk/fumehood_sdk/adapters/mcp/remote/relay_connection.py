"""HTTP/1.1 by the sandbox's relay: connections to one server, kept for a moment where they are tunnels."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time

from fumehood_sdk.adapters.mcp.remote.settings import RemoteSettings

CONNECT_TIMEOUT_S = 30.0
"""For the relay to dial, TLS included; for each piece of a request to be taken; and for a server to take a message that
it doesn't answer."""
ANSWER_TIMEOUT_S = 3600.0
"""Between two pieces of the answer to a request. As long as a tool may run: whoever waits has a deadline of its own."""
KEPT_S = 4.0
"""Servers close what is idle for five seconds or more. A request that meets a closed connection may have been taken,
and so is not sent again."""


class RelayConnections:
    """Connections to the server. For many threads."""

    __slots__ = ("_context", "_idle", "_lock", "_settings")

    def __init__(self, settings: RemoteSettings) -> None:
        """None is open."""
        self._settings = settings
        self._context = ssl.create_default_context(cafile=settings.authorities or None) if settings.is_tls else None
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._lock = threading.Lock()

    def take(self) -> http.client.HTTPConnection:
        """A connection, which is opened by its first request."""
        now = time.monotonic()
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, since = self._idle.pop()
            if (
                now - since < KEPT_S
                and connection.sock is not None
                and not select.select([connection.sock], [], [], 0)[0]
            ):
                connection.sock.settimeout(CONNECT_TIMEOUT_S)
                return connection
            connection.close()
        settings = self._settings
        where = (settings.proxy_host, settings.proxy_port)
        if self._context is None:
            return http.client.HTTPConnection(*where, timeout=CONNECT_TIMEOUT_S)
        tunnel = http.client.HTTPSConnection(*where, timeout=CONNECT_TIMEOUT_S, context=self._context)
        tunnel.set_tunnel(settings.host, settings.port)
        return tunnel

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """It may be used again: its response was read to the end."""
        if connection.sock is None or self._context is None:
            connection.close()
            return
        with self._lock:
            self._idle.append((connection, time.monotonic()))

    def send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        body: bytes,
        headers: dict[str, str],
        answer_timeout_s: float,
    ) -> socket.socket | None:
        """Send a request. Returns the socket that its response comes by, which `connection` may forget.

        `answer_timeout_s` is from one piece of the response to the next.

        Raises:
            OSError: it can't be sent.
            http.client.HTTPException: likewise.
        """
        settings = self._settings
        # A relay is told the whole URL where it makes the request, and nothing where it carries TLS.
        connection.request(method, settings.path if settings.is_tls else settings.url, body, headers)
        if connection.sock is not None:
            connection.sock.settimeout(answer_timeout_s)
        return connection.sock
