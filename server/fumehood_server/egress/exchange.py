"""HTTP/1.1 client (h11): one request and its response on a connection of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import h11

from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.headers import head_too_large
from fumehood_server.egress.http_receiver import HttpReceiver
from fumehood_server.egress.messages import MAX_PIECE_BYTES, Headers
from fumehood_server.egress.stream import Stream
from fumehood_server.egress.turns import PluginTurns
from fumehood_server.egress.url import Url

_MAX_INFORMATIONAL = 10
"""Responses 1xx before the one that counts: a server may send any number (RFC 9110 section 15.2)."""
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

    def __init__(self, stream: Stream, turns: PluginTurns, *, max_head_bytes: int) -> None:
        """Take over the stream. Reading a body that comes in very small pieces takes `turns`."""
        self._stream = stream
        self._max_head_bytes = max_head_bytes
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=max_head_bytes)
        self._receiver = HttpReceiver(self._http, stream, turns)
        self._sending: asyncio.Task[None] | None = None

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
        try:
            return await self._receiver.read_body()
        except OSError as error:
            raise _body_truncated() from error
        except h11.RemoteProtocolError as error:
            raise (_body_truncated() if self._receiver.eof else _response_invalid(error)) from error

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
            event = await self._next_head()
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

    async def _next_head(self) -> object:
        try:
            return await self._receiver.next_head()
        except OSError as error:
            raise _connection_lost() from error
        except h11.RemoteProtocolError as error:
            if self._receiver.eof:
                raise _connection_lost() from error
            if error.error_status_hint == _HTTP_HEAD_TOO_LARGE:
                raise self._head_too_large() from error
            raise _response_invalid(error) from error

    def _head_too_large(self) -> EgressFailedError:
        return EgressFailedError(
            Reason.HEAD_TOO_LARGE, f"the response's head has too many fields, or more than {self._max_head_bytes} bytes"
        )


def _response_invalid(error: h11.RemoteProtocolError) -> EgressFailedError:
    return EgressFailedError(Reason.RESPONSE_INVALID, f"the response is not valid HTTP/1.1: {error}")


def _body_truncated() -> EgressFailedError:
    return EgressFailedError(Reason.BODY_TRUNCATED, "the connection ended before the response's body did")


def _connection_lost() -> EgressFailedError:
    return EgressFailedError(Reason.CONNECTION_LOST, "the connection ended before there was a response")
