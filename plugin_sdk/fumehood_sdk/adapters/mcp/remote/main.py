"""Entry point of the process that speaks to a remote MCP server: JSON-RPC lines on stdin and stdout, POSTs outside."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from queue import SimpleQueue
from typing import Any

from fumehood_sdk.adapters.mcp.remote.exchange import Exchange
from fumehood_sdk.adapters.mcp.remote.relay_connection import CONNECT_TIMEOUT_S
from fumehood_sdk.adapters.mcp.remote.session import SessionEndedError
from fumehood_sdk.adapters.mcp.remote.settings import RemoteSettings
from fumehood_sdk.adapters.mcp.remote.upstream import Upstream

MAX_CALLS = 24
"""On their way at a time. What is more waits, and the adapter bounds that."""
MAX_OTHERS = 4
"""Likewise, of what a call may wait for: answers to what its server asks, cancellations, lists of tools. Together with
the calls, the first message and the last one less than the 32 connections that a relay serves at once."""
END_TIMEOUT_S = 0.3
"""To say that the session is over, at the end of stdin."""

Message = dict[str, Any]


class Remote:
    """The server, and the messages that are on their way to it."""

    __slots__ = ("_calls", "_lock", "_others", "_out", "_renewing", "_under_way", "_upstream", "_writing")

    def __init__(self, settings: RemoteSettings, out: int) -> None:
        """`out` is the descriptor for the server's messages."""
        self._upstream = Upstream(settings)
        self._out = out
        self._calls: SimpleQueue[Exchange] = SimpleQueue()
        self._others: SimpleQueue[Exchange] = SimpleQueue()
        self._under_way: dict[object, Exchange] = {}
        self._lock = threading.Lock()
        """For the requests under way."""
        self._writing = threading.Lock()
        self._renewing = threading.Lock()

    def start(self) -> None:
        """Start what sends."""
        for queue, places in ((self._calls, MAX_CALLS), (self._others, MAX_OTHERS)):
            for _ in range(places):
                threading.Thread(target=self._send_waiting, args=(queue,), daemon=True).start()

    def take(self, message: Message) -> None:
        """Take a message of the adapter's."""
        method = message.get("method")
        exchange = Exchange(message)
        if method == "notifications/initialized":
            self._run(exchange)  # what follows is for a session that has begun
            return
        if method == "notifications/cancelled" and not self._cancel(message.get("params", {}).get("requestId")):
            return
        if exchange.is_request:
            with self._lock:
                self._under_way[message["id"]] = exchange
        (self._calls if _is_call(method) else self._others).put(exchange)

    def end(self) -> None:
        """Tell a server with sessions that this one is over. Nobody waits for long."""
        if not self._upstream.session.id:
            return
        ending = threading.Thread(target=self._delete, daemon=True)
        ending.start()
        ending.join(END_TIMEOUT_S)

    def _cancel(self, request_id: object) -> bool:
        """Let go of a request. Whether the server is to be told."""
        with self._lock:
            found = self._under_way.pop(request_id, None)
        if found is not None and not found.abandon():
            found.fail(self._emit, "it was cancelled before it was sent")
            return False
        return bool(self._upstream.session.version)  # one of 2026-07-28 sees the end of the connection

    def _send_waiting(self, queue: SimpleQueue[Exchange]) -> None:
        while True:
            exchange = queue.get()
            self._run(exchange)
            with self._lock:
                if self._under_way.get(exchange.message.get("id")) is exchange:
                    del self._under_way[exchange.message.get("id")]

    def _run(self, exchange: Exchange) -> None:
        """Send a message; once more in another session, where the server ended the one that it was for."""
        for _ in range(2):
            used = self._upstream.session.id
            try:
                exchange.run(self._upstream, self._emit)
            except SessionEndedError:
                self._renew(used)
            else:
                return
        exchange.fail(self._emit, "the MCP server ends each session at once")

    def _renew(self, ended: str) -> None:
        """Begin another session in place of the one that has ended, unless another thread has."""
        with self._renewing:
            if self._upstream.session.id == ended:
                sys.stderr.write("fumehood-sdk: the MCP server has ended the session; another one is begun\n")
                sys.stderr.flush()
                for message in (
                    self._upstream.session.opening,
                    {"jsonrpc": "2.0", "method": "notifications/initialized"},
                ):
                    Exchange(message).run(self._upstream, _ignore)

    def _emit(self, message: Message) -> None:
        view = memoryview(json.dumps(message).encode() + b"\n")
        with self._writing:
            while view:
                view = view[os.write(self._out, view) :]

    def _delete(self) -> None:
        upstream = self._upstream
        connection = upstream.connections.take()
        headers = {**upstream.session.headers, **upstream.settings.headers}
        try:
            upstream.connections.send(connection, "DELETE", b"", headers, CONNECT_TIMEOUT_S)
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return


def _is_call(method: object) -> bool:
    """Whether a message has a server run something, for as long as that takes."""
    return isinstance(method, str) and method.startswith(("tools/call", "resources/", "prompts/"))


def _ignore(_message: Message) -> None:
    pass


def main() -> int:
    """Serve until stdin ends. Returns the exit status."""
    remote = Remote(RemoteSettings(os.environ), sys.stdout.fileno())
    remote.start()
    for line in sys.stdin.buffer:
        remote.take(json.loads(line))
    remote.end()
    return 0


if __name__ == "__main__":
    status = main()
    os._exit(status)
