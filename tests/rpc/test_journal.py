"""The journal over gRPC: listed in pages, followed as it grows, verified; and nobody who reads it holds up a call."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import journal_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence.merkle import leaf_hash
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.keys import load_or_make_key
from fumehood_server.rpc.journal_events import MAX_PAYLOAD_BYTES
from fumehood_server.rpc.journal_service import MAX_LISTINGS, MAX_WATCHERS
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.journal.bench import Clock, about, end, entries, start, written
from tests.rpc.support import BOUND_S, call, reason_of, refused
from tests.sidecar import Sidecar, running_sidecar

JOURNAL = '[journal]\nstore = "sqlite"\n'
CALLS = 400
EVENTS = 3 * CALLS + 1
LONG = b"[" + b" " * MAX_PAYLOAD_BYTES + b"]"
SERVICE = "fumehood.v1.JournalService"


@pytest.fixture(scope="module")
def recording(plugin_folder: Path) -> Iterator[Sidecar]:
    """A sidecar whose journal holds 1,203 events of before."""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        state = Path(name) / ".fumehood"
        state.mkdir(mode=0o700)
        clock = Clock()
        long = ((start(), b"{}"), (end(LONG), LONG))
        of_long = [
            encode(event, about("long"), time_us=clock() + EVENTS, sidecar="0a0b0c0d", number=at, payloads=(payload,))
            for at, (event, payload) in enumerate(long, 1)
        ]
        written(state / "journal.db", [[*entries(CALLS, clock=clock), *of_long]], load_or_make_key(state))
        with running_sidecar([plugin_folder], more=JOURNAL, at=Path(name)) as sidecar:
            yield sidecar


@pytest.fixture
async def channel(recording: Sidecar) -> AsyncIterator[grpc.aio.Channel]:
    async with recording.channel() as channel:
        yield channel


@pytest.fixture
def journal(channel: grpc.aio.Channel) -> Any:
    return JournalServiceStub(channel)


async def listed(journal: Any, **request: Any) -> list[pb.JournalEvent]:
    """All pages."""
    events: list[pb.JournalEvent] = []
    token = ""
    while True:
        page = await journal.ListEvents(pb.ListEventsRequest(page_token=token, **request), timeout=BOUND_S)
        events += page.events
        token = page.next_page_token
        if not token:
            return events


async def test_events_come_in_pages_as_they_were_written(journal: Any) -> None:
    first = await journal.ListEvents(pb.ListEventsRequest(filter=pb.EventFilter(end_position=EVENTS)))
    assert len(first.events) == 100
    assert first.journal_size >= EVENTS
    wanted = pb.EventFilter(end_position=EVENTS)
    events = await listed(journal, filter=wanted, page_size=333)
    assert [event.position for event in events] == [*range(EVENTS)]
    backwards = await listed(journal, filter=wanted, page_size=333, newest_first=True)
    assert backwards == events[::-1]
    start, attempt, end = events[1:4]
    assert (start.type, start.number, start.call_id, start.tool, start.plugin) == (
        *("execute_start", 1, "call-00000000"),
        *("write_file", "files"),
    )
    assert start.context.request_id == "run-0"
    assert start.digests == pb.EventDigests(
        arguments=hashlib.sha256(b'{"path":"0"}').hexdigest(), plugin="p" * 64, definition="d" * 64
    )
    assert attempt.digests.receipt == hashlib.sha256(b"receipt").hexdigest()
    assert (end.outcome, start.outcome) == ("OK", "")
    assert start.time.ToMicroseconds() < end.time.ToMicroseconds()
    assert len(leaf_hash(end.body_json.encode())) == 32
    assert json.loads(end.body_json)["data"]["worker_id"] == "files-1"


async def test_payloads_come_when_they_are_asked_for_and_kept(journal: Any) -> None:
    for call_id, states in (
        ("call-00000007", [pb.PAYLOAD_STATE_INCLUDED, pb.PAYLOAD_STATE_INCLUDED]),
        ("long", [pb.PAYLOAD_STATE_INCLUDED, pb.PAYLOAD_STATE_TOO_LONG]),
    ):
        events = await listed(journal, filter=pb.EventFilter(call_id=call_id), include_payloads=True)
        payloads = [payload for event in events for payload in event.payloads]
        assert [payload.name for payload in payloads] == ["arguments", "result"]
        assert [payload.state for payload in payloads] == states
        for payload in payloads:
            if payload.data:
                assert hashlib.sha256(payload.data).hexdigest() == payload.sha256
        plain = await listed(journal, filter=pb.EventFilter(call_id=call_id))
        assert {payload.state for event in plain for payload in event.payloads} == {pb.PAYLOAD_STATE_NOT_ASKED}


async def test_filters_reach_the_search(journal: Any) -> None:
    async def count(**wanted: Any) -> int:
        return len(await listed(journal, filter=pb.EventFilter(end_position=EVENTS, **wanted), page_size=1000))

    assert await count(request_id="run-3") == 30
    assert await count(types=["sidecar_started"]) == 1
    assert await count(types=["execute_end"], tool="write_file") == CALLS
    assert await count(outcomes=["OK"], plugin="files") == CALLS
    assert await count(session_id="nobody") == await count(caller="nobody") == 0
    assert await count(start_position=EVENTS - 2) == 2
    times = pb.EventFilter()
    times.start_time.FromMicroseconds((await listed(journal, page_size=1000))[100].time.ToMicroseconds())
    assert await count(start_time=times.start_time) == EVENTS - 100
    assert await count(end_time=times.start_time) == 100


@pytest.mark.parametrize(
    "request_",
    [
        pb.ListEventsRequest(page_size=-1),
        pb.ListEventsRequest(filter=pb.EventFilter(types=["execute_stop"])),
        pb.ListEventsRequest(filter=pb.EventFilter(types=["x" * 1_000_000])),
        pb.ListEventsRequest(filter=pb.EventFilter(types=["execute_end"] * 65)),
        pb.ListEventsRequest(filter=pb.EventFilter(tool="x" * 257)),
        pb.ListEventsRequest(filter=pb.EventFilter(start_position=-1)),
        pb.ListEventsRequest(filter=pb.EventFilter(start_position=5, end_position=4)),
    ],
    ids=["size", "type", "long type", "many types", "long tool", "position", "span"],
)
async def test_a_filter_that_is_wrong_is_refused(journal: Any, request_: pb.ListEventsRequest) -> None:
    assert await refused(journal.ListEvents(request_)) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def test_a_filter_at_the_ends_of_its_range_is_answered(journal: Any) -> None:
    most = (1 << 63) - 1
    wanted = pb.EventFilter(start_position=most, end_position=most)
    wanted.start_time.seconds = -most
    wanted.end_time.seconds = most
    assert await listed(journal, filter=wanted) == []


async def test_a_token_of_another_listing_is_refused(journal: Any) -> None:
    token = (await journal.ListEvents(pb.ListEventsRequest(page_size=5))).next_page_token
    for request in (
        pb.ListEventsRequest(page_token=token, newest_first=True),
        pb.ListEventsRequest(page_token=token, filter=pb.EventFilter(tool="x")),
        pb.ListEventsRequest(page_token="abc"),  # noqa: S106 - no secret
    ):
        assert (await refused(journal.ListEvents(request)))[1] == "PAGE_TOKEN_INVALID"


async def test_listings_above_the_bound_are_refused_and_the_others_answered(journal: Any) -> None:
    async def ask() -> str:
        try:
            await journal.ListEvents(pb.ListEventsRequest(page_size=1000, filter=pb.EventFilter(caller="nobody")))
        except grpc.aio.AioRpcError as exc:
            return reason_of(exc)
        return "answered"

    async with asyncio.timeout(BOUND_S):
        ends: list[str] = []
        while "TOO_MANY_STREAMS" not in ends:  # each may be answered before the next one comes
            ends = await asyncio.gather(*(ask() for _ in range(MAX_LISTINGS * 4)))
            assert set(ends) <= {"answered", "TOO_MANY_STREAMS"}
            assert ends.count("answered") >= MAX_LISTINGS * 3 // 4


async def test_a_watcher_gets_what_is_written_and_resumes_where_it_left(recording: Sidecar, journal: Any) -> None:
    async with recording.channel() as other, asyncio.timeout(BOUND_S):
        tools: Any = ToolServiceStub(other)
        watch = journal.WatchEvents(pb.WatchEventsRequest(filter=pb.EventFilter(tool="echo")))
        begun = (await watch.read()).next_position
        assert begun >= EVENTS
        await tools.CallTool(call("echo", {"text": "a"}, call_id="watched-a"))
        seen: list[tuple[str, str]] = []
        while len(seen) < 2:
            message = await watch.read()
            seen += [(event.call_id, event.type) for event in message.events]
        watch.cancel()
        assert seen == [("watched-a", "execute_start"), ("watched-a", "execute_end")]
        await tools.CallTool(call("echo", {"text": "b"}, call_id="watched-b"))
        wanted = pb.EventFilter(tool="echo", start_position=message.next_position)
        again = journal.WatchEvents(pb.WatchEventsRequest(filter=wanted))
        ids: list[str] = []
        while len(ids) < 2:
            ids += [event.call_id for event in (await again.read()).events]
        assert ids == ["watched-b"] * 2
        again.cancel()


async def test_a_watcher_from_the_start_gets_all_and_ends_where_it_asked(journal: Any) -> None:
    positions: list[int] = []
    wanted = pb.EventFilter(start_position=0, end_position=EVENTS)
    async with asyncio.timeout(BOUND_S):
        async for message in journal.WatchEvents(pb.WatchEventsRequest(filter=wanted)):
            assert not message.HasField("missed")
            positions += [event.position for event in message.events]
            assert message.next_position == len(positions)
    assert positions == [*range(EVENTS)]


async def test_a_watcher_after_the_end_is_refused(journal: Any) -> None:
    wanted = pb.EventFilter(start_position=10_000_000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await journal.WatchEvents(pb.WatchEventsRequest(filter=wanted)).read()
    assert reason_of(caught.value) == "REQUEST_INVALID"


async def test_a_slow_watcher_is_told_what_it_missed_and_nobody_waits_for_it(recording: Sidecar, journal: Any) -> None:
    async with recording.channel() as other, asyncio.timeout(2 * BOUND_S):
        tools: Any = ToolServiceStub(other)
        watch = journal.WatchEvents(pb.WatchEventsRequest(max_lag=20, include_payloads=True))
        position = (await watch.read()).next_position
        for number in range(50):  # 20 MB, of which the connection takes some
            await tools.CallTool(call("echo", {"text": "x" * 200_000}, call_id=f"slow-{number}"))
        missed, last = 0, ""
        while last != "last":
            message = await watch.read()
            if message.HasField("missed"):
                assert message.missed.start_position == position
                missed += message.missed.end_position - position
                position = message.missed.end_position
                await tools.CallTool(call("echo", {"text": ""}, call_id="last"))
            for event in message.events:
                assert event.position == position
                position, last = position + 1, event.call_id
            assert message.next_position == position
        watch.cancel()
        assert missed > 20


async def test_watchers_above_the_bound_are_refused(recording: Sidecar, journal: Any) -> None:
    async def begun(watch: Any) -> str:
        try:
            await watch.read()
        except grpc.aio.AioRpcError as exc:
            return reason_of(exc)
        return "watches"

    async with asyncio.timeout(BOUND_S):
        watching, most = 0, MAX_WATCHERS * 3 // 4
        while watching < most:  # those of tests before may not have ended yet
            watches = [journal.WatchEvents(pb.WatchEventsRequest()) for _ in range(2 * MAX_WATCHERS)]
            ends = await asyncio.gather(*(begun(watch) for watch in watches))
            for watch in watches:
                watch.cancel()
            watching = ends.count("watches")
            assert watching <= most
            assert set(ends) == {"watches", "TOO_MANY_STREAMS"}
    assert [line for line in recording.log() if line["event"] == "library_log"] == []


async def verdict_of(journal: Any, *keys: str) -> tuple[int, pb.VerifyVerdict]:
    """Messages of progress, and the last."""
    async with asyncio.timeout(BOUND_S):
        messages = [each async for each in journal.VerifyJournal(pb.VerifyJournalRequest(public_keys=keys))]
    assert [each.WhichOneof("step") for each in messages] == ["progress"] * (len(messages) - 1) + ["verdict"]
    return len(messages) - 1, messages[-1].verdict


async def test_a_journal_is_verified_and_the_first_bad_record_named(recording: Sidecar, journal: Any) -> None:
    progress, verdict = await verdict_of(journal)
    assert (verdict.verified, verdict.HasField("fault"), progress > 0) == (True, False, True)
    assert verdict.signed_events >= EVENTS
    kept = (recording.folder / ".fumehood" / "journal.pub").read_text().strip()
    assert (await verdict_of(journal, kept))[1].verified
    stream = journal.VerifyJournal(pb.VerifyJournalRequest(public_keys=["no key"]))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert reason_of(caught.value) == "REQUEST_INVALID"
    with contextlib.closing(sqlite3.connect(recording.folder / ".fumehood" / "journal.db")) as connection:
        connection.execute("UPDATE events SET tool = 'other' WHERE position = 7")
        connection.commit()
        _, verdict = await verdict_of(journal)
        connection.execute("UPDATE events SET tool = 'write_file' WHERE position = 7")
        connection.commit()
    assert (verdict.verified, verdict.fault.position, verdict.fault.problem) == (
        *(False, 7),
        "is filed under what it does not say",
    )


async def test_where_nothing_is_recorded_every_method_says_how_to_have_it(recording: Sidecar) -> None:
    off = running_sidecar(more='[journal]\nstore = "off"\n')
    with off as sidecar:
        await _says_how_to_have_it(sidecar, recording)


async def _says_how_to_have_it(sidecar: Sidecar, recording: Sidecar) -> None:
    async with sidecar.channel() as channel, recording.channel() as other:
        journal: Any = JournalServiceStub(channel)
        for answer in (
            journal.ListEvents(pb.ListEventsRequest()),
            journal.WatchEvents(pb.WatchEventsRequest()).read(),
            journal.VerifyJournal(pb.VerifyJournalRequest()).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="\\[journal\\]") as caught:
                await answer
            assert reason_of(caught.value) == "JOURNAL_OFF"
        asked = health_pb2.HealthCheckRequest(service=SERVICE)
        statuses = [(await HealthStub(each).Check(asked)).status for each in (channel, other)]
        assert statuses == [health_pb2.HealthCheckResponse.NOT_SERVING, health_pb2.HealthCheckResponse.SERVING]
