"""Sends one message by POST, and hands on what comes back: JSON, or a stream of events until the answer."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from fumehood_sdk.adapters.mcp.messages import PROBLEM_KEY, Message, one_line, unreadable
from fumehood_sdk.adapters.mcp.remote import REQUEST_KEY
from fumehood_sdk.adapters.mcp.remote.descriptions import MAX_TEXT_BYTES, describe
from fumehood_sdk.adapters.mcp.remote.event_stream import StreamPosition, TooLongError, events
from fumehood_sdk.adapters.mcp.remote.relay_connection import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S
from fumehood_sdk.adapters.mcp.remote.replays import is_anothers
from fumehood_sdk.adapters.mcp.remote.resumption import Resumption
from fumehood_sdk.adapters.mcp.remote.session import SessionEndedError
from fumehood_sdk.adapters.mcp.remote.upstream import Upstream

Emit = Callable[[Message], None]
"""Takes a message of the server's."""

FAILED = -32000
_COMMON = {"Accept-Encoding": "identity", "User-Agent": "fumehood"}
_OK, _ACCEPTED, _NOT_FOUND = 200, 202, 404
_UNAUTHORIZED = (401, 403)
"""Whose bodies may look like an error of JSON-RPC: OAuth has a member `error`, too (RFC 6749, 5.2)."""
_BUSY = frozenset({409, 429, 502, 503, 504})
"""Statuses of servers that may yet resume a stream; 409: they haven't noticed the end of what they sent before."""


class UnreadableError(Exception):
    """What the server sent is no JSON that is read here."""


class _NotResumedError(Exception):
    """The server doesn't resume the stream."""


class Exchange:
    """One message and what it brings. `abandon` is for another thread than `run`."""

    __slots__ = ("_abandoned", "_has_begun", "_lock", "_mark", "_socket", "message")

    def __init__(self, message: Message) -> None:
        """`message` is the adapter's."""
        self.message = message
        self._socket: socket.socket | None = None
        self._abandoned = threading.Event()
        self._has_begun = False
        self._mark = 0
        self._lock = threading.Lock()

    @property
    def is_request(self) -> bool:
        """Whether there is an answer to it."""
        return "id" in self.message and "method" in self.message

    def run(self, upstream: Upstream, emit: Emit) -> None:
        """Send the message, unless it has been abandoned. A request gets one answer through `emit`, whatever happens.

        Raises:
            SessionEndedError: the server knows the session no more, and has not taken the message. There is no answer.
        """
        with self._lock:
            self._has_begun = True
            if self._abandoned.is_set():
                return
        settings = upstream.settings
        try:
            self._post(upstream, emit)
        except SessionEndedError:
            raise
        except TooLongError:
            self.fail(emit, f"the MCP server's answer has more than {settings.max_message_bytes} bytes")
        except UnreadableError as error:
            if self.is_request:
                emit({"jsonrpc": "2.0", "id": self.message["id"], PROBLEM_KEY: str(error)})
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.fail(emit, f"{settings.host}:{settings.port} can't be asked: {str(error) or type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever it is in this answer, the thread serves other calls
            self.fail(emit, f"the MCP server's answer can't be handled: {type(error).__name__}: {one_line(error)}")

    def abandon(self) -> bool:
        """Close the connection, by which a server of 2026-07-28 is told that nobody waits. Idempotent.

        Returns whether the message may have been sent. Where not, it never is, and `run` answers nothing.
        """
        with self._lock:
            self._abandoned.set()
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it is closed already
                    self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread that reads
            return self._has_begun

    def fail(self, emit: Emit, text: str) -> None:
        """Answer a request with an error of ours."""
        if self.is_request:
            error = {"code": FAILED, "message": text}
            emit({"jsonrpc": "2.0", "id": self.message["id"], "error": error})

    def _post(self, upstream: Upstream, emit: Emit) -> None:
        begins = self.message.get("method") == "initialize"
        session = {} if begins else upstream.session.headers
        routing = upstream.routing.of(self.message)
        headers = {
            **_COMMON,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **session,
            **routing,
            **upstream.settings.headers,
        }
        position = StreamPosition()
        if self.is_request:
            self._mark = upstream.replays.begin()
        timeout_s = ANSWER_TIMEOUT_S if self.is_request else CONNECT_TIMEOUT_S
        with self._asked(upstream, "POST", json.dumps(self.message).encode(), headers, timeout_s) as response:
            if response is None or not _is_stream(response):
                if response is not None:
                    self._take_document(response, upstream, emit, names_session="Mcp-Session-Id" in session)
                return
            try:
                if self._take_stream(response, upstream, position, emit, is_resumed=False):
                    return
            except (OSError, http.client.HTTPException):
                if not position.last_event_id:
                    raise
        problem = "the MCP server ended its stream without an answer"
        if self.is_request and not begins and not routing:  # 2026-07-28 resumes nothing
            try:
                if self._resume(upstream, session, position, emit):
                    return
            except _NotResumedError as error:
                problem = f"{problem}, and resumes none: {error}"
        self.fail(emit, problem)

    def _resume(self, upstream: Upstream, session: Mapping[str, str], position: StreamPosition, emit: Emit) -> bool:
        """Ask for the rest of a stream until the answer has come. False: it doesn't come, or nobody waits for it.

        Raises:
            _NotResumedError: the server refuses to.
        """
        resumption = Resumption(position, time.monotonic())
        headers = {**_COMMON, "Accept": "text/event-stream", **session, **upstream.settings.headers}
        while (delay_s := resumption.next_delay_s(time.monotonic())) is not None:
            if self._abandoned.wait(delay_s):
                return False
            headers["Last-Event-ID"] = position.last_event_id.decode("latin-1")  # as which it is encoded again
            with (
                contextlib.suppress(OSError, http.client.HTTPException),
                self._asked(upstream, "GET", b"", headers, ANSWER_TIMEOUT_S) as response,
            ):
                if response is None:
                    return False
                if _is_stream(response):
                    if self._take_stream(response, upstream, position, emit, is_resumed=True):
                        return True
                elif response.status not in _BUSY:
                    raise _NotResumedError(describe(response, response.read(MAX_TEXT_BYTES), upstream.settings.headers))
        return False

    @contextlib.contextmanager
    def _asked(
        self, upstream: Upstream, method: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> Iterator[http.client.HTTPResponse | None]:
        """Send a request, and yield its response, `timeout_s` from piece to piece. None: it was abandoned."""
        connections = upstream.connections
        connection = connections.take()
        response: http.client.HTTPResponse | None = None
        try:
            if self._goes_on(None) and self._goes_on(connections.send(connection, method, body, headers, timeout_s)):
                response = connection.getresponse()
            yield response
        finally:
            with self._lock:
                self._socket = None
            if response is not None and response.isclosed():  # it was read to its end
                connections.give_back(connection)
            else:
                connection.close()

    def _goes_on(self, sock: socket.socket | None) -> bool:
        """Whether to go on, with this socket to be closed from now on by who abandons it."""
        with self._lock:
            self._socket = sock
            return not self._abandoned.is_set()

    def _take_stream(
        self,
        response: http.client.HTTPResponse,
        upstream: Upstream,
        position: StreamPosition,
        emit: Emit,
        *,
        is_resumed: bool,
    ) -> bool:
        """Hand on the messages of a stream until the answer. Whether it has come; what may follow is for nobody."""
        answered = False
        for data in events(response, upstream.settings.max_message_bytes, position):
            for message in _messages(data) if data else ():  # an event without data only has an id to resume by
                has_come = upstream.replays.has_come(message)
                if self._answers(message):
                    answered = True
                    message["id"] = self.message["id"]
                    self._learn(message, response, upstream)
                elif is_resumed and (has_come or is_anothers(message, self.message)):
                    continue
                is_mine = not is_resumed or upstream.replays.is_alone(self._mark)
                message[REQUEST_KEY] = self.message.get("id") if is_mine else None
                emit(message)
            if answered:
                upstream.replays.end(self._mark)
                return True
        return False

    def _take_document(
        self, response: http.client.HTTPResponse, upstream: Upstream, emit: Emit, *, names_session: bool
    ) -> None:
        limit = upstream.settings.max_message_bytes
        body = response.read(limit + 1)
        if len(body) > limit:
            raise TooLongError
        if self.is_request:
            upstream.replays.end(self._mark)
        if response.status == _NOT_FOUND and names_session:
            raise SessionEndedError
        found = self._answer_in(response, body)
        if found is not None:
            self._learn(found, response, upstream)
            emit({**found, "id": self.message.get("id")})
        elif response.status != _ACCEPTED or "id" in self.message:
            self.fail(emit, describe(response, body, upstream.settings.headers))

    def _answer_in(self, response: http.client.HTTPResponse, body: bytes) -> Message | None:
        """The answer in a document. None: the status, and what else it holds, are to be told.

        Raises:
            UnreadableError: nothing tells otherwise, and it is no JSON that is read here.
        """
        if response.status in _UNAUTHORIZED or not _is(response, "application/json"):
            return None
        try:
            return next((each for each in _messages(body) if self._answers(each)), None)
        except UnreadableError:
            if response.status == _OK:
                raise
            return None

    def _learn(self, message: Message, response: http.client.HTTPResponse, upstream: Upstream) -> None:
        """Take what an answer says of later messages."""
        result = message.get("result")
        if not isinstance(result, dict):
            return
        method = self.message.get("method")
        if method == "initialize":
            session = upstream.session
            upstream.replays.begin_session()
            session.opening = self.message
            session.id = response.getheader("Mcp-Session-Id") or ""
            session.version = str(result.get("protocolVersion", ""))[:64]
        elif method == "tools/list":
            upstream.routing.learn(result)

    def _answers(self, message: Message) -> bool:
        """Whether it is the answer. An error of the transport may name no id."""
        number = message.get("id")
        if "id" not in self.message or "method" in message:
            return False
        return number == self.message["id"] or (number is None and isinstance(message.get("error"), dict))


def _is_stream(response: http.client.HTTPResponse) -> bool:
    return response.status == _OK and _is(response, "text/event-stream")


def _is(response: http.client.HTTPResponse, media_type: str) -> bool:
    return (response.getheader("Content-Type") or "").partition(";")[0].strip().lower() == media_type


def _messages(data: bytes) -> list[Message]:
    """The messages in JSON text: one, or what an older server sends as a batch.

    Raises:
        UnreadableError: it can't be read.
    """
    try:
        read = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(unreadable(error)) from error
    return [each for each in (read if isinstance(read, list) else [read]) if isinstance(each, dict)]
