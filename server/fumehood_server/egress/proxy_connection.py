"""HTTP/1.1 proxy server (h11): one request on a program's connection, and its response."""

from __future__ import annotations

from dataclasses import dataclass

import h11

from fumehood_server.egress.errors import EgressError, EgressRefusedError, Reason
from fumehood_server.egress.headers import end_to_end_headers
from fumehood_server.egress.http_receiver import HttpReceiver
from fumehood_server.egress.messages import Headers
from fumehood_server.egress.stream import Stream
from fumehood_server.egress.turns import PluginTurns

_DROPPED_FIELDS = frozenset({"host", "content-length", "expect", "http2-settings"})
"""Fields that are not forwarded, beside the hop-by-hop ones. `Host` is made anew from the URL."""

_STATUSES = {
    Reason.PROXY_REQUEST_INVALID: 400,
    Reason.REQUEST_TOO_LARGE: 413,
    Reason.RELAY_BUSY: 503,
    Reason.TIMEOUT: 504,
}
"""HTTP status of a reason. Other refusals are 403, other failures 502."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A proxy request. Header names are in lower case; hop-by-hop fields are removed."""

    method: str
    target: str
    headers: Headers


class ProxyConnection:
    """The server side of one connection, which serves one request."""

    def __init__(self, stream: Stream, turns: PluginTurns, *, max_head_bytes: int) -> None:
        """Take over the stream. Reading a body that comes in very small pieces takes `turns`."""
        self.stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        self._receiver = HttpReceiver(self._http, stream, turns)
        self._answered = False

    async def read_request(self) -> ProxyRequest | None:
        """The request's head; None if the program left without one.

        Raises:
            EgressRefusedError: `PROXY_REQUEST_INVALID`.
            OSError: the program left.
        """
        try:
            event = await self._receiver.next_head()
        except h11.RemoteProtocolError as error:
            raise _invalid(error) from error
        if not isinstance(event, h11.Request):
            return None
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
        if event.method == b"CONNECT" and any(
            name == "transfer-encoding" or (name == "content-length" and value != "0") for name, value in headers
        ):
            raise EgressRefusedError(Reason.PROXY_REQUEST_INVALID, "CONNECT has no body")
        kept = tuple(
            field
            for field in end_to_end_headers(headers)
            if field[0] not in _DROPPED_FIELDS and not field[0].startswith("proxy-")
        )
        return ProxyRequest(event.method.decode("ascii"), event.target.decode("ascii"), kept)

    async def read_body(self, max_bytes: int) -> bytes:
        """The request's body, whole.

        Raises:
            EgressRefusedError: `REQUEST_TOO_LARGE` or `PROXY_REQUEST_INVALID`.
            OSError: the program left.
        """
        body = bytearray()
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            while piece := await self._receiver.read_body():
                body += piece
                if len(body) > max_bytes:
                    raise EgressRefusedError(Reason.REQUEST_TOO_LARGE, f"the body has more than {max_bytes} bytes")
        except h11.RemoteProtocolError as error:
            raise _invalid(error) from error
        return bytes(body)

    async def accept_tunnel(self) -> bytes:
        """Answer CONNECT with 200. Returns what the program has sent into the tunnel already."""
        self._http.next_event()  # the end of the request: there is no body, see `read_request`
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        self._answered = True
        return self._receiver.take_unread()

    async def send_head(self, status: int, headers: Headers) -> None:
        """Send the status and the header fields."""
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._answered = True
        await self._send(h11.Response(status_code=status, headers=[*fields, (b"connection", b"close")]))

    async def send_body(self, piece: bytes) -> None:
        """Send a piece of the body."""
        await self._send(h11.Data(data=piece))

    async def send_end(self) -> None:
        """End the body. Without this the connection closes early, and the program sees a truncated response."""
        await self._send(h11.EndOfMessage())

    async def send_error(self, error: EgressError) -> None:
        """Answer with an error.

        Raises:
            OSError: a response was begun, so that only closing can tell of the error; or the program has left.
        """
        if self._answered or self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            raise ConnectionAbortedError(str(error)) from error
        status = _STATUSES.get(error.reason, 403 if isinstance(error, EgressRefusedError) else 502)
        text = f"{error.reason}: {error.message}\n".encode()
        fields = (
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(text))),
            ("fumehood-refusal", str(error.reason)),
        )
        await self.send_head(status, fields)
        await self.send_body(text)
        await self.send_end()

    async def _send(self, event: h11.Event) -> None:
        try:
            data = self._http.send(event)
        except h11.LocalProtocolError as error:  # the body is not as long as its Content-Length says
            raise ConnectionAbortedError(str(error)) from error
        if data:
            await self.stream.send_all(data)


def _invalid(error: h11.RemoteProtocolError) -> EgressRefusedError:
    return EgressRefusedError(Reason.PROXY_REQUEST_INVALID, f"not a valid HTTP/1.1 request: {error}")
