"""HTTP/1.1 client (h11): one request and its response on a connection of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import h11

from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.headers import head_too_large
from fumehood_server.egress.messages import MAX_PIECE_BYTES, Headers
from fumehood_server.egress.stream import Stream
from fumehood_server.egress.url import Url

_MAX_INFORMATIONAL = 10
"""Responses 1xx before the one that counts: a server may send any number (RFC 9110 section 15.2)."""
_EVENTS_AT_A_TIME = 200
"""h11 events between two yields to the event loop: a body of one-byte chunks would keep it busy for long."""
_HTTP_HEAD_TOO_LARGE = 431
"""h11's hint for a head that does not end."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that follows the rules. Header names are in lower case."""

    method: str
    url: Url
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and header fields of a response, as received. Header names are in lower case."""

    status: int
    headers: Headers


class Exchange:
    """One request and its response. Close it in any case; cancelling a wait leaves it fit for closing only."""

    def __init__(self, stream: Stream, *, max_head_bytes: int) -> None:
        """Take over the stream."""
        self._stream = stream
        self._max_head_bytes = max_head_bytes
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=max_head_bytes)
        self._sending: asyncio.Task[None] | None = None
        self._eof = False
        self._body_ended = False

    async def send_request(self, request: CheckedRequest) -> ResponseHead:
        """Send the request and read the head of its response.

        The body is sent while the response is read: a server may refuse it before it has taken it.

        Raises:
            EgressFailedError: there is no response, or none that is valid.
        """
        fields = [("host", request.url.authority), *request.headers, ("connection", "close")]
        if request.body or request.method in {"POST", "PUT", "PATCH"}:
            fields.append(("content-length", str(len(request.body))))
        encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields]
        head = self._http.send(h11.Request(method=request.method, target=request.url.target, headers=encoded))
        if request.body:
            self._http.send(h11.Data(data=request.body))
        self._http.send(h11.EndOfMessage())
        self._sending = asyncio.create_task(self._send(head or b"", request.body), name="egress request body")
        return await self._read_head()

    async def read_body(self) -> bytes:
        """The next bytes of the body as they came, transfer coding undone; none at its end.

        Raises:
            EgressFailedError: `BODY_TRUNCATED`, `CONNECTION_LOST`, `RESPONSE_INVALID` or `RESPONSE_TOO_LARGE`.
        """
        body = bytearray()
        taken = 0
        while not self._body_ended and len(body) < MAX_PIECE_BYTES:
            try:
                event = self._next_event(in_body=True)
            except EgressFailedError:
                if body:
                    break  # hand out what came before the error first; h11 raises it again
                raise
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._body_ended = True
            elif event is not h11.NEED_DATA:
                raise EgressFailedError(Reason.BODY_TRUNCATED, "the response's body ends too early")
            elif body:
                break
            else:
                await self._receive(in_body=True)
            taken += 1
            if not taken % _EVENTS_AT_A_TIME:
                await asyncio.sleep(0)
        return bytes(body)

    async def close(self) -> None:
        """End the connection."""
        self._stream.abort()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self, head: bytes, body: bytes) -> None:
        try:
            await self._stream.send_all(head)
            for start in range(0, len(body), MAX_PIECE_BYTES):
                await self._stream.send_all(body[start : start + MAX_PIECE_BYTES])
        except OSError:
            return  # reading finds out, and there may be a response all the same

    async def _read_head(self) -> ResponseHead:
        for _ in range(_MAX_INFORMATIONAL + 1):
            while (event := self._next_event(in_body=False)) is h11.NEED_DATA:
                await self._receive(in_body=False)
            if isinstance(event, h11.Response):
                headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
                if head_too_large(headers, self._max_head_bytes):
                    raise self._head_too_large()
                names = [name for name, _ in headers]
                if "transfer-encoding" in names and "content-length" in names:  # RFC 9112 section 6.1: ought to
                    raise EgressFailedError(Reason.RESPONSE_INVALID, "the response gives its length in two ways")
                return ResponseHead(event.status_code, headers)
            if not isinstance(event, h11.InformationalResponse):
                break
        raise EgressFailedError(Reason.RESPONSE_INVALID, "the server sent something that is no response")

    def _next_event(self, *, in_body: bool) -> object:
        """What h11 makes of the bytes that are here: an event, or `h11.NEED_DATA`."""
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            if self._eof:
                raise self._lost(in_body=in_body) from error
            if error.error_status_hint == _HTTP_HEAD_TOO_LARGE and not in_body:
                raise self._head_too_large() from error
            raise EgressFailedError(Reason.RESPONSE_INVALID, f"the response is not valid HTTP/1.1: {error}") from error

    async def _receive(self, *, in_body: bool) -> None:
        """Wait for more bytes, or for the end of them."""
        try:
            data = await self._stream.receive_some()
        except OSError as error:
            raise self._lost(in_body=in_body) from error
        self._eof = not data
        self._http.receive_data(data)

    def _head_too_large(self) -> EgressFailedError:
        return EgressFailedError(
            Reason.HEAD_TOO_LARGE, f"the response's head has too many fields, or more than {self._max_head_bytes} bytes"
        )

    @staticmethod
    def _lost(*, in_body: bool) -> EgressFailedError:
        if in_body:
            return EgressFailedError(Reason.BODY_TRUNCATED, "the connection ended before the response's body did")
        return EgressFailedError(Reason.CONNECTION_LOST, "the connection ended before there was a response")
