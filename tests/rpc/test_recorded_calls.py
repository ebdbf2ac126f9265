"""A call is known by its id: while it runs, when it has ended, and after the sidecar was killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import content_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.verify import verify
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.sidecar import Sidecar, running_sidecar

from .diary import Place, new_place

BOUND_S = 60


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as place:
        yield place


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    """Where one sidecar runs for several tests, whose ids of calls are their own."""
    with new_place() as place:
        yield place


@pytest.fixture(scope="module")
def sidecar(shared: Place) -> Iterator[Sidecar]:
    with shared.sidecar() as sidecar:
        yield sidecar


async def test_a_call_that_is_repeated_gets_the_recorded_outcome_and_runs_once(place: Place) -> None:
    with place.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub = ToolServiceStub(channel)
            first = await stub.CallTool(place.call("one", line="a"))
            assert first.result.details_json == "1"
            again = await stub.CallTool(place.call("one", line="a"))
            other_text = place.call("one")
            other_text.arguments_json = f'{{"line": "a",  "folder":{json.dumps(str(place.diary))}}}'
            spaced = await stub.CallTool(other_text)
            control = await stub.CallTool(place.call("two", line="a"))
    with place.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            later = await ToolServiceStub(channel).CallTool(place.call("one", line="a"))
    assert again.result == spaced.result == later.result
    assert (again.result.details_json, again.result.content[0].text) == ("1", first.result.content[0].text)
    assert again.result.sandbox == first.result.sandbox
    assert control.result.details_json == "2"
    assert place.lines() == ["a", "a"]


async def test_an_id_that_is_given_to_another_call_is_refused(shared: Place, sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        await stub.CallTool(shared.call("given-one", line="given"))
        for request in (shared.call("given-one", line="b"), shared.call("given-one", "pause", seconds=0)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.CallTool(request)
            assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
            streamed = stub.StreamTool(pb.StreamToolRequest(call=request))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                [message async for message in streamed]
            assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert shared.lines().count("given") == 1


async def test_a_session_refuses_such_an_id_and_goes_on(shared: Place, sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        for name in ("session-one", "session-two"):
            await stub.CallTool(shared.call(name, line="a"))
        session = stub.Session()
        for request in (shared.call("session-one", line="b"), shared.call("session-two", line="a")):
            await session.write(pb.SessionRequest(call=request))
        answers = [await session.read(), await session.read()]
        await session.done_writing()
    assert {answer.WhichOneof("event") for answer in answers} == {"refused", "finished"}
    refused = next(answer.refused for answer in answers if answer.WhichOneof("event") == "refused")
    assert refused.error.code == "CALL_ID_IN_USE"


async def test_a_call_under_way_is_joined_and_followed(shared: Place, sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        request = shared.call("joined-slow", "hold", name="go-on")
        stream = stub.StreamTool(pb.StreamToolRequest(call=request))
        assert (await stream.read()).WhichOneof("event") == "started"
        state = await stub.GetCall(pb.GetCallRequest(call_id="joined-slow"))
        assert (state.state, state.HasField("result")) == (pb.CALL_STATE_RUNNING, False)
        left = stub.CallTool(request)
        await asyncio.sleep(0)
        left.cancel()
        joined = stub.StreamTool(pb.StreamToolRequest(call=request))
        assert (await joined.read()).WhichOneof("event") == "started"
        answers = asyncio.gather(
            stub.CallTool(request), stub.GetCall(pb.GetCallRequest(call_id="joined-slow", wait=True))
        )
        await stub.GetCall(pb.GetCallRequest(call_id="joined-slow"))  # answered after those have come
        (shared.signals / "go-on").touch()
        own, followed = await answers
        finished = [await each.read() for each in (stream, joined)]
    assert own.result == finished[0].finished == finished[1].finished
    assert followed.state == pb.CALL_STATE_ENDED
    assert followed.result.details_json == own.result.details_json == '"held"'


async def test_get_call_tells_how_a_call_ended_and_what_is_unknown(shared: Place, sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        made = await stub.CallTool(shared.call("", line="a"))
        found = await stub.GetCall(pb.GetCallRequest(call_id=made.result.call_id))
        assert (found.state, found.tool, found.result_removed) == (pb.CALL_STATE_ENDED, "note", False)
        assert found.result.content == made.result.content
        assert found.result.usage.wall_time.ToMicroseconds() == pytest.approx(
            made.result.usage.wall_time.ToMicroseconds(), abs=1
        )
        assert abs(found.started_at.ToSeconds() - sidecar.folder.stat().st_mtime) < 600
        refused = await stub.CallTool(pb.CallToolRequest(tool="nothing", call_id="lost"))
        assert (await stub.GetCall(pb.GetCallRequest(call_id="lost"))).result.error.code == refused.result.error.code
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.GetCall(pb.GetCallRequest(call_id="never"))
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


@dataclass(frozen=True)
class Killed:
    place: Place
    sidecar: Sidecar
    """That came after the one that was killed."""


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    """A sidecar was killed while three calls had written and not ended."""
    with new_place() as place:
        with place.sidecar() as sidecar, grpc.insecure_channel(sidecar.target) as channel:
            for call_id in ("executed", "not-executed", "both"):
                request = pb.StreamToolRequest(call=place.call(call_id, "note_and_hang"))
                stream: Any = ToolServiceStub(channel).StreamTool(request, timeout=BOUND_S)
                while next(stream).WhichOneof("event") != "update":
                    pass
            sidecar.signal(signal.SIGKILL)
            sidecar.wait()
        with place.sidecar() as sidecar:
            yield Killed(place, sidecar)


def _resolution(call_id: str, resolution: pb.Resolution.ValueType, text: str = "") -> pb.ResolveCallRequest:
    content = [content_pb2.Content(text=text)] if text else []
    return pb.ResolveCallRequest(
        call_id=call_id, resolution=resolution, content=content, resolved_by="ada", reason="I have read the diary"
    )


@pytest.mark.parametrize("executed", [True, False])
async def test_what_a_kill_left_unknown_is_not_run_again_and_is_settled_once(killed: Killed, *, executed: bool) -> None:
    place, call_id = killed.place, "executed" if executed else "not-executed"
    async with killed.sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        found = await stub.GetCall(pb.GetCallRequest(call_id=call_id))
        assert found.state == pb.CALL_STATE_OUTCOME_UNKNOWN
        repeated = await stub.CallTool(place.call(call_id, "note_and_hang"))
        assert repeated.result == found.result
        assert repeated.result.error.code == "TOOL_OUTCOME_UNKNOWN"
        if executed:
            settled = await stub.ResolveCall(_resolution(call_id, pb.RESOLUTION_EXECUTED, "one line"))
            assert settled.result.content[0].text == "one line"
        else:
            settled = await stub.ResolveCall(_resolution(call_id, pb.RESOLUTION_NOT_EXECUTED))
            assert json.loads(settled.result.error.details_json)["reason"] == "not_executed"
        later = await stub.GetCall(pb.GetCallRequest(call_id=call_id))
        assert (later.state, later.result.content) == (pb.CALL_STATE_RESOLVED, settled.result.content)
        with pytest.raises(grpc.aio.AioRpcError) as twice:
            await stub.ResolveCall(_resolution(call_id, pb.RESOLUTION_EXECUTED))
        assert twice.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert place.lines() == ["hung"] * 3
    with contextlib.closing(SqliteReader(place.folder / ".fumehood" / "journal.db")) as reader:
        assert verify(reader, public_keys(place.folder / ".fumehood")).fault is None


async def test_of_two_who_settle_an_outcome_at_once_one_does(killed: Killed) -> None:
    async with killed.sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        texts = [f"by {number}" for number in range(8)]
        requests = [_resolution("both", pb.RESOLUTION_EXECUTED, text) for text in texts]
        answers = await asyncio.gather(*(stub.ResolveCall(each) for each in requests), return_exceptions=True)
        settled = [each.result.content[0].text for each in answers if not isinstance(each, BaseException)]
        found = await stub.GetCall(pb.GetCallRequest(call_id="both"))
    assert len(settled) == 1
    assert found.result.content[0].text == settled[0]
    refused = [each.code() for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert refused == [grpc.StatusCode.FAILED_PRECONDITION] * 7


async def test_a_resolution_names_who_and_why(shared: Place, sidecar: Sidecar) -> None:
    good = _resolution("named-one", pb.RESOLUTION_EXECUTED)
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        for wrong in (
            pb.ResolveCallRequest(call_id="named-one", resolved_by="ada", reason="r"),
            pb.ResolveCallRequest(call_id="named-one", resolution=good.resolution, reason="r"),
            pb.ResolveCallRequest(call_id="named-one", resolution=good.resolution, resolved_by="ada"),
            pb.ResolveCallRequest(resolution=good.resolution, resolved_by="ada", reason="r"),
            _resolution("named-one", pb.RESOLUTION_NOT_EXECUTED, "text"),
            _resolution("named-one", pb.RESOLUTION_EXECUTED, "x" * 100_000),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ResolveCall(wrong)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.ResolveCall(good)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        await stub.CallTool(shared.call("named-two", line="a"))
        with pytest.raises(grpc.aio.AioRpcError) as known:
            await stub.ResolveCall(_resolution("named-two", pb.RESOLUTION_EXECUTED))
        assert known.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_sidecar_that_records_nothing_says_so(place: Place, shared: Place, sidecar: Sidecar) -> None:
    with place.sidecar('[journal]\nstore = "off"\n') as silent:
        async with silent.channel() as channel:
            stub = ToolServiceStub(channel)
            result = (await stub.CallTool(place.call("one", line="a"))).result
            assert not result.is_error
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.GetCall(pb.GetCallRequest(call_id="one"))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert [layer.weaker for layer in result.sandbox.layers if layer.name == "journal"] == [True]
    assert not (place.folder / ".fumehood" / "journal.db").exists()
    async with sidecar.channel() as channel:
        result = (await ToolServiceStub(channel).CallTool(shared.call("", line="a"))).result
    assert [layer for layer in result.sandbox.layers if layer.name == "journal"] == []


async def test_a_flood_of_large_harmless_results_is_recorded_whole(place: Place) -> None:
    """Together far more than waits in memory for the disk: the calls wait, and nothing is left out."""
    calls, size = 60, 400_000
    with place.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub = ToolServiceStub(channel)
            requests = [place.call(f"call-{number}", "fill", size=size) for number in range(calls)]
            answers = await asyncio.gather(*(stub.CallTool(request) for request in requests))
            assert all(len(answer.result.content[0].text) == size for answer in answers)
        sidecar.signal()
        sidecar.wait()
    with contextlib.closing(SqliteReader(place.folder / ".fumehood" / "journal.db")) as reader:
        counts = reader.counts()
        assert (counts.calls, counts.ended, reader.last("events_lost")) == (calls, calls, None)
        assert sum(map(len, reader.payloads(0, counts.events).values())) > calls * size


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    """A file system of 24 MiB, where the sidecar keeps its state."""
    folder = place.folder / "disk"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=24m", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["/bin/umount", str(folder)], check=True)


@pytest.mark.parametrize("required", [True, False])
async def test_while_the_journal_cannot_be_written_calls_are_refused_as_the_operator_said(
    place: Place, small_disk: Path, *, required: bool
) -> None:
    more = f"[journal]\nrequired = {str(required).lower()}\n"
    server = f'state_dir = "{small_disk}"\nlisten = ["unix:{place.folder}/fh.sock"]\n'
    with running_sidecar([place.plugin], server=server, more=more, at=place.folder) as sidecar:
        async with sidecar.channel() as channel:
            stub, health = ToolServiceStub(channel), HealthStub(channel)

            async def serves() -> bool:
                answer = await health.Check(health_pb2.HealthCheckRequest(service="journal"))
                return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

            assert await serves()
            assert (await stub.CallTool(place.call("", line="a"))).result.details_json == "1"
            ballast = small_disk / "ballast"
            with contextlib.suppress(OSError):
                ballast.write_bytes(b"x" * 24 * 1024 * 1024)
            refused = (await stub.CallTool(place.call("", line="b"))).result
            assert refused.error.code == "CONFIG_JOURNAL_UNAVAILABLE"
            assert (refused.error.retryable, refused.attempts) == (True, 0)
            assert not await serves()
            harmless = (await stub.CallTool(place.call("", "pause", seconds=0))).result
            assert harmless.is_error is required
            ballast.unlink()
            async with asyncio.timeout(BOUND_S):
                while not await serves():  # noqa: ASYNC110 - nothing else tells
                    await asyncio.sleep(0.1)
            assert (await stub.CallTool(place.call("", line="c"))).result.details_json == "2"
            sidecar.signal()
            sidecar.wait()
    assert place.lines() == ["a", "c"]
    assert [line["event"] for line in sidecar.log() if line["event"].startswith("journal")] == [
        "journal_unavailable",
        "journal_available",
    ]
    with contextlib.closing(SqliteReader(small_disk / "journal.db")) as reader:
        counts = reader.counts()
        assert counts.calls == counts.ended == 4
        assert verify(reader, public_keys(small_disk)).fault is None
