"""`WatchEvents`: follows the journal on disk, which is the one buffer that a watcher has.

Commits only wake it. It reads at its own pace on the threads of `JournalReads`, a message at a time, so that a watcher
which reads slowly holds one message, and neither the writer nor anybody else waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from fumehood.v1 import journal_service_pb2 as pb

from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.store import Reader
from fumehood_server.rpc.journal_events import page_of
from fumehood_server.rpc.journal_requests import invalid, read_filter, read_span

DEFAULT_LAG = 10_000
MAX_LAG = 1_000_000
GROUP_S = 0.05
"""Between two reads of a watcher that is at the end: what is committed meanwhile comes in one message."""

_MESSAGE_BYTES = 256 * 1024
"""Far below the 4 MiB that a gRPC client takes. One event with payloads may be longer."""
_BOUNDS = Bounds(events=256, body_bytes=_MESSAGE_BYTES)


async def watched(reads: JournalReads, request: pb.WatchEventsRequest) -> AsyncGenerator[bytes, None]:
    """Serialised messages, the first at once. The caller takes the next one when it has sent the last.

    Raises:
        RefusedError: the request is wrong.
        StoreError: the journal can't be read.
    """
    query = read_filter(request.filter)
    start, end = read_span(request.filter)
    max_lag = min(request.max_lag or DEFAULT_LAG, MAX_LAG)
    size, pruned = await reads.run(lambda reader: (reader.size(), pruned_so_far(reader)))
    position = size if start is None else start
    if position > size:
        raise invalid(f"start_position {position} is after the end of the journal, which has {size} events")
    yield pb.WatchEventsResponse(next_position=position, removed_before=pruned.up_to).SerializeToString()
    has_caught_up = False
    while end is None or position < end:
        size = max(size, reads.commits.size)
        if position >= size:
            has_caught_up = True
            await reads.beyond(position)
            await asyncio.sleep(GROUP_S)
            size = reads.commits.size
        response = pb.WatchEventsResponse()
        if has_caught_up and size - position > max_lag:
            response.missed.start_position = position
            position = response.missed.end_position = size if end is None else min(size, end)
            response.next_position = position
            yield response.SerializeToString()
            continue
        span = Span(position, size if end is None else min(size, end))
        data, position = await reads.search(_Page(query, span, payloads=request.include_payloads))
        if data:
            yield data


class _Page:
    """Reads the next message, on a thread: it is serialised there as well."""

    def __init__(self, query: EventQuery, span: Span, *, payloads: bool) -> None:
        self._query = query
        self._span = span
        self._payloads = payloads

    def __call__(self, reader: Reader) -> tuple[bytes, int]:
        """The message, empty where it would say nothing, and the position after it."""
        found = reader.search(self._query, self._span, _BOUNDS)
        events, rest = page_of(reader, found, self._span, payloads=self._payloads, max_bytes=_MESSAGE_BYTES)
        position = self._span.end if rest is None else rest.start
        if not events and rest is None:
            return b"", position
        return pb.WatchEventsResponse(events=events, next_position=position).SerializeToString(), position
