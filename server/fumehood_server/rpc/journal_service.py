"""`fumehood.v1.JournalService`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from fumehood.v1 import journal_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.query import Bounds
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.store import Reader, StoreError
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.journal_events import page_of
from fumehood_server.rpc.journal_forking import fork_run
from fumehood_server.rpc.journal_replaying import read_run_name, replayed, verified
from fumehood_server.rpc.journal_requests import page_span, page_token, read_filter
from fumehood_server.rpc.journal_verifying import read_keys, verification
from fumehood_server.rpc.journal_watching import watched
from fumehood_server.rpc.message_stream import follow_messages
from fumehood_server.rpc.paging import MAX_PAGE_BYTES, page_size
from fumehood_server.rpc.reading import Service
from fumehood_server.rpc.stream_slots import StreamSlots

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["JournalService"].full_name

MAX_LISTINGS = 32
MAX_LISTINGS_OF_CONNECTION = 8
"""At a time. Each has its turn on the threads that read."""

MAX_WATCHERS = 64
MAX_WATCHERS_OF_CONNECTION = 16

MAX_VERIFICATIONS = 4
"""At a time, of which unix sockets and TCP have three each: processes of lower priority."""

MAX_REPLAYS = 8
MAX_REPLAYS_OF_CONNECTION = 2
MAX_VERIFYING_REPLAYS = 2
"""At a time, of which unix sockets and TCP have one each: each has a process that runs two calls at a time."""

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class JournalService:
    """The methods. Each returns or writes serialised messages, or raises RefusedError."""

    def __init__(self, server: ServerContext) -> None:
        """Serve the journal of this sidecar, where it has one."""
        self._server = server
        self._listings = StreamSlots(
            "listings of the journal", total=MAX_LISTINGS, connection=MAX_LISTINGS_OF_CONNECTION
        )
        self._watchers = StreamSlots(
            "watchers of the journal", total=MAX_WATCHERS, connection=MAX_WATCHERS_OF_CONNECTION
        )
        self._verifications = StreamSlots("verifications", total=MAX_VERIFICATIONS, connection=1)
        self._replays = StreamSlots("replays", total=MAX_REPLAYS, connection=MAX_REPLAYS_OF_CONNECTION)
        self._verifying = StreamSlots("replays that verify", total=MAX_VERIFYING_REPLAYS, connection=1)

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        reader = self._server.reader
        methods = {
            "ListEvents": reader.unary(self.list_events, pb.ListEventsRequest),
            "WatchEvents": reader.streaming(self.watch_events, pb.WatchEventsRequest),
            "VerifyJournal": reader.streaming(self.verify_journal, pb.VerifyJournalRequest),
            "ReplayRun": reader.streaming(self.replay_run, pb.ReplayRunRequest),
            "ForkRun": reader.unary(self.fork_run, pb.ForkRunRequest, waits=True),
        }
        return Service(SERVICE, methods)

    async def list_events(self, request: pb.ListEventsRequest, context: _Context[pb.ListEventsRequest]) -> bytes:
        """See journal_service.proto, as for every method."""
        reads = self._reads()
        query, count = read_filter(request.filter), page_size(request.page_size)
        page_span(request, 0)  # refused before anything is read

        def read(reader: Reader) -> bytes:
            size = reader.size()
            span = page_span(request, size)
            found = reader.search(query, span, Bounds(count, MAX_PAGE_BYTES))
            events, rest = page_of(reader, found, span, payloads=request.include_payloads, max_bytes=MAX_PAGE_BYTES)
            response = pb.ListEventsResponse(
                events=events,
                next_page_token=page_token(request, rest),
                journal_size=size,
                removed_before=pruned_so_far(reader).up_to,
            )
            return response.SerializeToString()

        caller = context.peer()
        self._server.unread.check(caller)
        with self._listings.take(caller), _unavailable():
            return await reads.search(read)

    async def watch_events(self, request: pb.WatchEventsRequest, context: _Context[pb.WatchEventsRequest]) -> None:
        """Events from a position on, and new ones."""
        messages = watched(self._reads(), request)
        with self._watchers.take(context.peer()):
            await self._send(messages, context)

    async def verify_journal(
        self, request: pb.VerifyJournalRequest, context: _Context[pb.VerifyJournalRequest]
    ) -> None:
        """Progress, and then the verdict."""
        reads = self._reads()
        keys = await read_keys(request.public_keys, reads)
        with self._verifications.take(context.peer()):
            await self._send(verification(keys, reads), context)

    async def replay_run(self, request: pb.ReplayRunRequest, context: _Context[pb.ReplayRunRequest]) -> None:
        """A run's calls from the record, or run again, and then the summary."""
        run, reads = read_run_name(request), self._reads()
        if not request.verify:
            with self._replays.take(context.peer()):
                await self._send(replayed(run, reads, self._server.orchestrator.checks), context)
            return
        with self._verifying.take(context.peer()):
            await self._send(verified(run, reads, self._server.orchestrator.checks, self._server.config()), context)

    async def fork_run(self, request: pb.ForkRunRequest, context: _Context[pb.ForkRunRequest]) -> bytes:
        """A run that goes on from an event of another."""
        reads, caller = self._reads(), asking().admitted
        with self._listings.take(context.peer()), _unavailable():
            return (await fork_run(self._server.journal, reads, request, caller.recorded)).SerializeToString()

    async def _send(self, messages: AsyncGenerator[bytes, None], context: _Context[Any]) -> None:
        await follow_messages(self._server, messages, context, _unavailable())

    def _reads(self) -> JournalReads:
        reads = self._server.journal_reads
        if reads is None:
            text = (
                'this sidecar records nothing: its operator has set [journal] store = "off" in fumehood.toml. Without '
                "that line it does, from its next start on"
            )
            raise RefusedError(Refusal(RefusalReason.JOURNAL_OFF, text))
        return reads


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """Refuse where the journal can't be read."""
    try:
        yield
    except StoreError as exc:
        text = f"the journal can't be read: {exc}"
        raise RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, text)) from exc
