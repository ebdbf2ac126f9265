"""Sends one message by POST, and hands on what comes back: JSON, or a stream of events until the answer."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.remote import REQUEST_KEY
from fumehood_sdk.adapters.mcp.remote.event_stream import TooLongError, events
from fumehood_sdk.adapters.mcp.remote.relay_connection import RelayConnections
from fumehood_sdk.adapters.mcp.remote.routing_headers import RoutingHeaders
from fumehood_sdk.adapters.mcp.remote.settings import RemoteSettings

Message = dict[str, Any]
Emit = Callable[[Message], None]
"""Takes a message of the server's."""

REFUSAL_FIELD = "Fumehood-Refusal"
FAILED = -32000
MAX_TEXT_BYTES = 2048
"""Of an answer that is no JSON-RPC, for people."""
_OK, _ACCEPTED, _NOT_FOUND, _REDIRECTS = 200, 202, 404, range(300, 400)


class SessionEndedError(Exception):
    """The server knows the session no more, and takes nothing that names it."""


class Session:
    """What a server of an older revision has said by `initialize`. For many threads, of which one writes."""

    __slots__ = ("id", "opening", "version")

    def __init__(self) -> None:
        """There is none."""
        self.id = ""
        self.version = ""
        self.opening: Message = {}
        """What began it."""

    @property
    def headers(self) -> dict[str, str]:
        """Fields for each message after `initialize`."""
        found = {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.version}
        return {name: value for name, value in found.items() if value}


class Exchange:
    """One message and what it brings. `abandon` is for another thread than `run`."""

    __slots__ = ("_abandoned", "_lock", "_session_id", "_socket", "message")

    def __init__(self, message: Message) -> None:
        """`message` is the adapter's."""
        self.message = message
        self._socket: socket.socket | None = None
        self._abandoned = False
        self._session_id = ""
        """That it was sent with."""
        self._lock = threading.Lock()

    def run(
        self,
        connections: RelayConnections,
        settings: RemoteSettings,
        session: Session,
        routing: RoutingHeaders,
        emit: Emit,
    ) -> None:
        """Send the message. A request gets one answer through `emit`, whatever happens.

        Raises:
            SessionEndedError: the server knows the session no more, and has not taken the message. There is no answer.
        """
        try:
            self._post(connections, settings, session, routing, emit)
        except SessionEndedError:
            raise
        except TooLongError:
            self.fail(emit, f"the MCP server's answer has more than {settings.max_message_bytes} bytes")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.fail(emit, f"{settings.host}:{settings.port} can't be asked: {str(error) or type(error).__name__}")

    def abandon(self) -> None:
        """Close the connection, by which a server of 2026-07-28 is told that nobody waits. Idempotent."""
        with self._lock:
            self._abandoned = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it is closed already
                    self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread that reads

    def _post(
        self,
        connections: RelayConnections,
        settings: RemoteSettings,
        session: Session,
        routing: RoutingHeaders,
        emit: Emit,
    ) -> None:
        body = json.dumps(self.message).encode()
        headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "fumehood",
            **({} if self.message.get("method") == "initialize" else session.headers),
            **routing.of(self.message),
            **settings.headers,
        }
        connection = connections.take()
        whole = False
        try:
            self._session_id = headers.get("Mcp-Session-Id", "")
            if self._begins(None) and self._begins(connections.send(connection, "POST", body, headers)):
                whole = self._take(connection.getresponse(), settings, session, routing, emit)
        finally:
            with self._lock:
                self._socket = None
            if whole:
                connections.give_back(connection)
            else:
                connection.close()

    def _begins(self, sock: socket.socket | None) -> bool:
        """Whether to go on, with this socket to be closed from now on by who abandons it."""
        with self._lock:
            self._socket = sock
            return not self._abandoned

    def _take(
        self,
        response: http.client.HTTPResponse,
        settings: RemoteSettings,
        session: Session,
        routing: RoutingHeaders,
        emit: Emit,
    ) -> bool:
        """Hand on what a response holds. Whether it was read to its end."""
        limit = settings.max_message_bytes
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if response.status == _OK and kind == "text/event-stream":
            answered = False
            for data in events(response, limit):
                for message in _messages(data):
                    answered = answered or self._answers(message)
                    message[REQUEST_KEY] = self.message.get("id")
                    self._learn(message, response, session, routing)
                    emit(message)
                if answered:
                    return False  # what may follow is for nobody
            if not answered:
                self.fail(emit, "the MCP server ended its stream without an answer")
            return True
        body = response.read(limit + 1)
        if len(body) > limit:
            raise TooLongError
        if response.status == _NOT_FOUND and self._session_id:
            raise SessionEndedError
        found = [each for each in _messages(body) if self._answers(each)] if kind == "application/json" else []
        if found:
            self._learn(found[0], response, session, routing)
            emit({**found[0], "id": self.message.get("id")})
        elif response.status != _ACCEPTED or "id" in self.message:
            self.fail(emit, _described(response, body))
        return True

    def _learn(
        self, message: Message, response: http.client.HTTPResponse, session: Session, routing: RoutingHeaders
    ) -> None:
        result = message.get("result")
        if not isinstance(result, dict) or not self._answers(message):
            return
        method = self.message.get("method")
        if method == "initialize":
            session.opening = self.message
            session.id = response.getheader("Mcp-Session-Id") or ""
            session.version = str(result.get("protocolVersion", ""))[:64]
        elif method == "tools/list":
            routing.learn(result)

    def _answers(self, message: Mapping[str, Any]) -> bool:
        """Whether it is the answer. An error of the transport may name no id."""
        number = message.get("id")
        mine = "id" in self.message and (number == self.message["id"] or (number is None and "error" in message))
        return mine and "method" not in message

    def fail(self, emit: Emit, text: str) -> None:
        """Answer a request with an error of ours."""
        if "id" in self.message and "method" in self.message:
            error = {"code": FAILED, "message": text}
            emit({"jsonrpc": "2.0", "id": self.message["id"], "error": error})


def _messages(data: bytes) -> list[Message]:
    """The messages in JSON text: one, or what an older server sends as a batch."""
    try:
        read = json.loads(data)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    return [each for each in (read if isinstance(read, list) else [read]) if isinstance(each, dict)]


def _described(response: http.client.HTTPResponse, body: bytes) -> str:
    text = " ".join(body[:MAX_TEXT_BYTES].decode("utf-8", "replace").split())[:500]
    if response.getheader(REFUSAL_FIELD):
        return f"the sidecar refuses it: {text}"
    if response.status in _REDIRECTS:
        where = (response.getheader("Location") or "")[:500]
        return f"the MCP server answers with a redirect to {where}, which is not followed: name that URL"
    return f"the MCP server answers with HTTP status {response.status}: {text}"
