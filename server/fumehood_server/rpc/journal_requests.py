"""Reads requests for events: their filter, the span that it leaves, and the token of a page."""

from __future__ import annotations

import hashlib

from fumehood.v1 import journal_service_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.journal.query import EventQuery, Span
from fumehood_server.model.event_types import EVENTS
from fumehood_server.model.nearest import nearest
from fumehood_server.rpc.paging import make_token, read_token

MAX_NAMES = 64
_MAX_TEXT_BYTES = 256
_MAX_TYPE_CHARS = 64
_MAX_US = 1 << 62
_MAX_DIGITS = 19
_TEXTS = ("call_id", "request_id", "session_id", "tool", "plugin", "caller")


def read_filter(wanted: pb.EventFilter) -> EventQuery:
    """What an event must fit, but for its position.

    Raises:
        RefusedError: something of it is wrong.
    """
    for name in _TEXTS:
        if len(getattr(wanted, name).encode()) > _MAX_TEXT_BYTES:
            raise invalid(f"{name} is longer than {_MAX_TEXT_BYTES} bytes")
    for name, several in (("types", wanted.types), ("outcomes", wanted.outcomes)):
        if len(several) > MAX_NAMES:
            raise invalid(f"{name} has more than {MAX_NAMES} entries")
    for each in wanted.types:
        if each not in EVENTS:
            hint = nearest(each[:_MAX_TYPE_CHARS], EVENTS)
            raise invalid(f'there are no events of type "{each[:_MAX_TYPE_CHARS]}"' + (f": {hint}" if hint else ""))
    return EventQuery(
        types=frozenset(wanted.types),
        since_us=_microseconds(wanted, "start_time"),
        until_us=_microseconds(wanted, "end_time"),
        call_id=wanted.call_id,
        run_id=wanted.request_id,
        session_id=wanted.session_id,
        tool=wanted.tool,
        plugin=wanted.plugin,
        caller=wanted.caller,
        outcomes=frozenset(wanted.outcomes),
    )


def read_span(wanted: pb.EventFilter) -> tuple[int | None, int | None]:
    """The first position asked for and the one that ends it, None where nothing is said.

    Raises:
        RefusedError: they are no span.
    """
    start = wanted.start_position if wanted.HasField("start_position") else None
    if (start or 0) < 0 or wanted.end_position < 0:
        raise invalid("positions begin with 0")
    if wanted.end_position and (start or 0) > wanted.end_position:
        raise invalid("start_position is after end_position")
    return start, wanted.end_position or None


def page_span(request: pb.ListEventsRequest, size: int) -> Span:
    """The stretch of a journal of so many events that a page is looked for in.

    Raises:
        RefusedError: the filter's positions or the token are wrong.
    """
    start, end = read_span(request.filter)
    last = size if end is None else min(end, size)
    after = read_token(request.page_token, _made_for(request))
    if after and not (after.isdecimal() and len(after) < _MAX_DIGITS):
        raise RefusedError(Refusal(RefusalReason.PAGE_TOKEN_INVALID, "page_token was not made here: start without one"))
    if after and request.newest_first:
        last = min(int(after), last)
    elif after:
        start = int(after)
    return Span(start or 0, last, request.newest_first)


def page_token(request: pb.ListEventsRequest, rest: Span | None) -> str:
    """The token of what is left. Empty: nothing is."""
    if rest is None:
        return ""
    return make_token(str(rest.end if request.newest_first else rest.start), _made_for(request))


def invalid(message: str) -> RefusedError:
    """A request that is wrong."""
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))


def _made_for(request: pb.ListEventsRequest) -> tuple[str, ...]:
    """What a token is good for. It says no more than a digest: a filter may be long."""
    data = request.filter.SerializeToString(deterministic=True)
    return ("events", hashlib.sha256(data).hexdigest()[:16], "newest" if request.newest_first else "oldest")


def _microseconds(wanted: pb.EventFilter, name: str) -> int:
    """POSIX time. 0: none is asked for; what lies before 1970 begins with the first event."""
    if not wanted.HasField(name):  # type: ignore[arg-type] # of the two that are messages
        return 0
    time: Timestamp = getattr(wanted, name)
    return min(max(time.seconds * 1_000_000 + time.nanos // 1_000, 1), _MAX_US)
