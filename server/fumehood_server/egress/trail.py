"""What is noted of a request while it runs, so that it leaves exactly one event."""

from __future__ import annotations

import time
from dataclasses import replace

from fumehood_server.egress.addresses import IPAddress
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
from fumehood_server.egress.messages import Asker
from fumehood_server.egress.stream import Tally
from fumehood_server.egress.url import Url
from fumehood_server.model.text import printable

_MAX_METHOD = 32


class Trail:
    """Notes of one request. `end` makes the event."""

    def __init__(self, asker: Asker, method: str, url_text: str) -> None:
        """Start the clock."""
        self.tally = Tally()
        self._asker = asker
        self._method = printable(method[:_MAX_METHOD])
        self._digest = url_digest(url_text)
        self._shown = shown_text(url_text)
        self._hops: list[Hop] = []
        self._started_at_s = time.time()
        self._started_s = time.monotonic()

    def hop(self, url: Url) -> None:
        """The next connection is for that URL, which was read without fault."""
        if not self._hops:
            self._shown = shown_url(url)
        self._hops.append(Hop(url.scheme, str(url.host), url.port, url.path[:MAX_SHOWN], "", 0))

    def tunnel(self, host: str, port: int) -> None:
        """The next connection is a tunnel to there."""
        self._hops.append(Hop("tunnel", host, port, "", "", 0))

    def dialled(self, address: IPAddress) -> None:
        """The current hop's address is that."""
        self._hops[-1] = replace(self._hops[-1], address=str(address))

    def answered(self, status: int) -> None:
        """The current hop's status is that."""
        self._hops[-1] = replace(self._hops[-1], status=status)

    def end(self, sink: EventSink, *, error: EgressError | None, whole: bool) -> None:
        """Hand the event to `sink`. Without an error, `whole` tells whether all of the response was read."""
        if isinstance(error, EgressRefusedError):
            outcome = Outcome.REFUSED
        elif error is not None:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.DONE if whole else Outcome.CANCELLED
        sink(
            EgressEvent(
                asker=self._asker,
                method=self._method,
                shown=self._shown,
                url_digest=self._digest,
                hops=tuple(self._hops),
                outcome=outcome,
                reason=error.reason if error is not None else None,
                message=error.message if error is not None else "",
                bytes_sent=self.tally.sent,
                bytes_received=self.tally.received,
                duration_s=time.monotonic() - self._started_s,
                started_at_s=self._started_at_s,
            )
        )
