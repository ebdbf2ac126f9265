"""Entry point of the process that speaks to a remote MCP server: JSON-RPC lines on stdin and stdout, POSTs outside."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from collections import deque
from typing import Any

from fumehood_sdk.adapters.mcp.remote.exchange import Emit, Exchange, Session, SessionEndedError
from fumehood_sdk.adapters.mcp.remote.relay_connection import RelayConnections
from fumehood_sdk.adapters.mcp.remote.routing_headers import RoutingHeaders
from fumehood_sdk.adapters.mcp.remote.settings import RemoteSettings

MAX_EXCHANGES = 28
"""At a time: a relay serves 32 connections at once. What is more waits, and the adapter bounds that."""
END_TIMEOUT_S = 0.3
"""To say that the session is over, at the end of stdin."""

Message = dict[str, Any]


class Remote:
    """The server, and the messages that are on their way to it."""

    __slots__ = (
        "_connections",
        "_out",
        "_renewing",
        "_routing",
        "_session",
        "_settings",
        "_under_way",
        "_waiting",
        "_writing",
    )

    def __init__(self, settings: RemoteSettings, out: int) -> None:
        """`out` is the descriptor for the server's messages."""
        self._settings = settings
        self._connections = RelayConnections(settings)
        self._session = Session()
        self._routing = RoutingHeaders()
        self._out = out
        self._waiting: deque[Exchange] = deque()
        self._under_way: dict[object, Exchange] = {}
        self._writing = threading.Lock()
        self._renewing = threading.Lock()

    def start(self) -> threading.Condition:
        """Start what sends. Returns what is notified of each message."""
        condition = threading.Condition()
        for _ in range(MAX_EXCHANGES):
            threading.Thread(target=self._send_waiting, args=(condition,), daemon=True).start()
        return condition

    def take(self, message: Message, condition: threading.Condition) -> None:
        """Take a message of the adapter's."""
        if message.get("method") == "notifications/initialized":
            self._run(Exchange(message))  # what follows is for a session that has begun
            return
        cancelled = None
        if message.get("method") == "notifications/cancelled":
            cancelled = message.get("params", {}).get("requestId")
        with condition:
            found = self._under_way.pop(cancelled, None) if cancelled is not None else None
            if found is not None and found in self._waiting:
                self._waiting.remove(found)
                return
            if cancelled is None or self._session.version:
                exchange = Exchange(message)
                # Before others: what it cancels may hold the only thread that could send it.
                self._waiting.appendleft(exchange) if cancelled is not None else self._waiting.append(exchange)
                if "id" in message and "method" in message:
                    self._under_way[message["id"]] = exchange
                condition.notify()
        if found is not None:
            found.abandon()

    def end(self) -> None:
        """Tell a server with sessions that this one is over. Nobody waits for long."""
        if not self._session.id:
            return
        ending = threading.Thread(target=self._delete, daemon=True)
        ending.start()
        ending.join(END_TIMEOUT_S)

    def _send_waiting(self, condition: threading.Condition) -> None:
        while True:
            with condition:
                while not self._waiting:
                    condition.wait()
                exchange = self._waiting.popleft()
            self._run(exchange)
            with condition:
                if self._under_way.get(exchange.message.get("id")) is exchange:
                    del self._under_way[exchange.message.get("id")]

    def _run(self, exchange: Exchange) -> None:
        """Send a message; once more in another session, where the server ended the one that it was for."""
        for _ in range(2):
            used = self._session.id
            try:
                self._exchange(exchange, self._emit)
            except SessionEndedError:
                self._renew(used)
            else:
                return
        exchange.fail(self._emit, "the MCP server ends each session at once")

    def _renew(self, ended: str) -> None:
        """Begin another session in place of the one that has ended, unless another thread has."""
        with self._renewing:
            if self._session.id == ended:
                sys.stderr.write("fumehood-sdk: the MCP server has ended the session; another one is begun\n")
                sys.stderr.flush()
                self._exchange(Exchange(self._session.opening), _ignore)
                self._exchange(Exchange({"jsonrpc": "2.0", "method": "notifications/initialized"}), _ignore)

    def _exchange(self, exchange: Exchange, emit: Emit) -> None:
        exchange.run(self._connections, self._settings, self._session, self._routing, emit)

    def _emit(self, message: Message) -> None:
        view = memoryview(json.dumps(message).encode() + b"\n")
        with self._writing:
            while view:
                view = view[os.write(self._out, view) :]

    def _delete(self) -> None:
        connection = self._connections.take()
        headers = {**self._session.headers, **self._settings.headers}
        try:
            self._connections.send(connection, "DELETE", b"", headers)
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return


def _ignore(_message: Message) -> None:
    pass


def main() -> int:
    """Serve until stdin ends. Returns the exit status."""
    remote = Remote(RemoteSettings(os.environ), sys.stdout.fileno())
    condition = remote.start()
    for line in sys.stdin.buffer:
        remote.take(json.loads(line), condition)
    remote.end()
    return 0


if __name__ == "__main__":
    status = main()
    os._exit(status)
