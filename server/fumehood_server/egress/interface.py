"""Interfaces of the egress broker and of the relay (an HTTP forward proxy), and their factories.

Nothing here imports an HTTP library or a TLS store: a sidecar without granted hosts never pays for either.
"""

from __future__ import annotations

import socket
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from fumehood_server.egress.access import Access
from fumehood_server.egress.events import EventSink, log_event
from fumehood_server.egress.messages import CurrentOrigin, EgressRequest, EgressResponse, RequestOrigin
from fumehood_server.egress.own_listeners import OwnListeners


class EgressBroker(Protocol):
    """Performs requests for processes that have no network. One for a sidecar; safe for any number of calls at once."""

    def request(
        self, request: EgressRequest, access: Access, origin: RequestOrigin
    ) -> AbstractAsyncContextManager[EgressResponse]:
        """Perform one request within an `async with`; the response's head is there on entering.

        Leaving it closes the connection and makes the request's one event, whatever happened. Cancelling the task
        that is inside ends the request at once.

        Raises:
            EgressRefusedError: on entering: a rule forbids the request, or a redirect of it.
            EgressFailedError: on entering: there is no response.
        """


class RelayServer(Protocol):
    """An HTTP forward proxy on a listening socket, for programs that only know proxy variables."""

    def serve(
        self, listener: socket.socket, access: Access, current_origin: CurrentOrigin
    ) -> AbstractAsyncContextManager[None]:
        """Serve proxy requests on `listener` for the length of an `async with`, which owns the socket and closes it.

        `listener` is a listening TCP socket, of whatever network namespace. Leaving ends every connection under way.
        CONNECT needs `access.tunnels`; `http://` requests follow the rules of `EgressBroker.request`, but redirects
        are handed to the program, which asks anew. A refusal is status 403 with its reason in `Fumehood-Refusal`.
        """


def import_broker() -> None:
    """Import what `open_broker` and `open_relay` need. It takes 60 ms: where a loop runs, do it in a thread first."""
    import fumehood_server.egress.relay  # noqa: F401, PLC0415 - see above


def open_broker(sink: EventSink = log_event, *, own: OwnListeners | None = None) -> EgressBroker:
    """The broker that reaches the real network. Imports the HTTP library: make it when the first host is granted.

    `own` are the sidecar's listeners, which no request is dialled to. None: whoever asks is no plugin.
    """
    from fumehood_server.egress.broker import Broker  # noqa: PLC0415 - see above

    return Broker(sink=sink, own=own)


def open_relay(broker: EgressBroker) -> RelayServer:
    """A relay that goes out through a broker made by `open_broker`. One serves any number of sockets."""
    from fumehood_server.egress.broker import Broker  # noqa: PLC0415 - see `open_broker`
    from fumehood_server.egress.relay import Relay  # noqa: PLC0415 - likewise

    if not isinstance(broker, Broker):
        raise TypeError("a relay needs a broker made by open_broker")
    return Relay(broker)
