"""Audit record of one request: filled while it runs, emitted as exactly one event at its end."""

from __future__ import annotations

import time
from dataclasses import replace

from fumehood_server.egress.addresses import IPAddress
from fumehood_server.egress.byte_count import ByteCount
from fumehood_server.egress.errors import EgressError, EgressRefusedError
from fumehood_server.egress.events import (
    MAX_SHOWN,
    EgressEvent,
    EventSink,
    Hop,
    Outcome,
    shown_text,
    shown_url,
    url_digest,
)
from fumehood_server.egress.messages import RequestOrigin
from fumehood_server.egress.url import Url
from fumehood_server.model.text import printable

_MAX_METHOD = 32


class AuditRecord:
    """The hops, byte counts and times of one request. `emit_event` makes the event."""

    def __init__(self, origin: RequestOrigin, method: str, url_text: str) -> None:
        """Start the clock, and have the origin count the request: at its end the call may be over."""
        origin.count_request()
        self.byte_count = ByteCount()
        self._origin = origin
        self._method = printable(method[:_MAX_METHOD])
        self._digest = url_digest(url_text)
        self._shown = shown_text(url_text)
        self._hops: list[Hop] = []
        self._started_at_s = time.time()
        self._started_s = time.monotonic()

    def add_hop(self, url: Url) -> None:
        """Begin the hop to a URL that was parsed without error."""
        if not self._hops:
            self._shown = shown_url(url)
        self._hops.append(Hop(url.scheme, str(url.host), url.port, url.path[:MAX_SHOWN], "", 0))

    def add_tunnel(self, host: str, port: int) -> None:
        """Begin the hop of a CONNECT tunnel."""
        self._hops.append(Hop("tunnel", host, port, "", "", 0))

    def set_address(self, address: IPAddress) -> None:
        """Note the address that the current hop dials."""
        self._hops[-1] = replace(self._hops[-1], address=str(address))

    def set_status(self, status: int) -> None:
        """Note the status that the current hop was answered with."""
        self._hops[-1] = replace(self._hops[-1], status=status)

    def emit_event(self, sink: EventSink, *, error: EgressError | None, whole: bool) -> None:
        """Hand the event to `sink`. Without an error, `whole` tells whether all of the response was read."""
        if isinstance(error, EgressRefusedError):
            outcome = Outcome.REFUSED
        elif error is not None:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.DONE if whole else Outcome.CANCELLED
        sink(
            EgressEvent(
                origin=self._origin,
                method=self._method,
                shown=self._shown,
                url_digest=self._digest,
                hops=tuple(self._hops),
                outcome=outcome,
                reason=error.reason if error is not None else None,
                message=error.message if error is not None else "",
                bytes_sent=self.byte_count.sent,
                bytes_received=self.byte_count.received,
                duration_s=time.monotonic() - self._started_s,
                started_at_s=self._started_at_s,
            )
        )
