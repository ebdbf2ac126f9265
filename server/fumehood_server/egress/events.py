"""Audit events: exactly one for each request, allowed or refused."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol

import structlog

from fumehood_server.egress.errors import Reason
from fumehood_server.egress.messages import RequestOrigin
from fumehood_server.egress.url import Url
from fumehood_server.model.text import printable

MAX_SHOWN = 512
"""Longest part of a URL in an event, in characters."""


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    """The whole response was handed out."""
    REFUSED = "refused"
    """A rule forbade it, or the next hop of it."""
    FAILED = "failed"
    """It was allowed and did not work out."""
    CANCELLED = "cancelled"
    """The call ended, or the plugin did not want the rest."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One connection: what was asked for, the address dialled (empty if it came to none), the status (0 if none)."""

    scheme: str
    host: str
    port: int
    path: str
    address: str
    status: int


@dataclass(frozen=True, slots=True)
class EgressEvent:
    """One request through the broker.

    Queries are kept out, since keys are often in them; `url_digest` (SHA-256 of the text as asked) tells whether two
    requests were for the same. `shown` is the URL without query and user information, printable and cut.
    """

    origin: RequestOrigin
    method: str
    shown: str
    url_digest: str
    hops: tuple[Hop, ...]
    outcome: Outcome
    reason: Reason | None
    message: str
    bytes_sent: int
    """Written to sockets, TLS not counted."""
    bytes_received: int
    """Read from sockets, TLS not counted, before decoding."""
    duration_s: float
    started_at_s: float
    """Seconds since 1970."""


class EventSink(Protocol):
    """Callback that takes each event. It must not block and must not raise."""

    def __call__(self, event: EgressEvent) -> None:
        """Take one event."""


def log_event(event: EgressEvent) -> None:
    """Sink that writes the event to the sidecar's log, as one line `egress`."""
    log = structlog.get_logger()
    fields = asdict(event)
    origin = fields.pop("origin")
    write = log.warning if event.outcome is Outcome.REFUSED else log.info
    write("egress", **origin, **fields)


def url_digest(text: str) -> str:
    """SHA-256 of a URL's text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def shown_text(text: str) -> str:
    """A URL that could not be read, fit to be shown: without query, fragment and what may be user information."""
    front = text.split("?", 1)[0].split("#", 1)[0]
    head, at, tail = front.rpartition("@")
    if at:
        front = f"{head.partition('//')[0]}//…@{tail}"
    return printable(front[:MAX_SHOWN])[:MAX_SHOWN]


def shown_url(url: Url) -> str:
    """A URL without its query, cut."""
    return f"{url.scheme}://{url.authority}{url.path}"[:MAX_SHOWN]
