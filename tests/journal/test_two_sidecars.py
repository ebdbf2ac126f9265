"""Two sidecars on one PostgreSQL: one outcome for each id, whoever is asked or killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal

import grpc
import pytest
from fumehood.v1 import journal_service_pb2 as jpb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood_server.config.database import Database
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import verify

from tests.cli.command import fumehood
from tests.rpc.support import ToolClient, call, reason_of, text_of

from .two_sidecars import BOUND_S, Pair, found, start


@pytest.mark.parametrize("tool", ["enter", "look"])
async def test_an_id_sent_to_both_at_once_runs_on_one_and_both_are_told(pair: Pair, tool: str) -> None:
    ids = [f"{tool}-{number}" for number in range(10)]
    answers = await asyncio.gather(
        *(
            client.tools.CallTool(call(tool, pair.arguments(each), call_id=each), timeout=BOUND_S)
            for each in ids
            for client in pair.clients
        )
    )
    assert [text_of(each.result) for each in answers] == [each for each in ids for _ in pair.clients]
    if tool == "enter":
        assert sorted(each for each in pair.entries() if each in ids) == sorted(ids)
    with contextlib.closing(DatabasePlace(Database(pair.url)).open_reader()) as reader:
        for kind in ("execute_start", "execute_end"):
            wanted = EventFilter(types=frozenset({kind}), subjects=tuple(ids))
            assert sorted(each.subject for each in reader.events(wanted, limit=100)) == sorted(ids)


async def test_a_call_that_runs_on_the_other_is_followed_and_another_under_its_id_is_refused(pair: Pair) -> None:
    one, other = pair.clients
    arguments = pair.arguments("slow", waits=True)
    running = asyncio.ensure_future(one.tools.CallTool(call("enter", arguments, call_id="slow"), timeout=BOUND_S))
    assert (await found(other, "slow")).state == pb.CALL_STATE_RUNNING
    followed = asyncio.ensure_future(other.tools.CallTool(call("enter", arguments, call_id="slow"), timeout=BOUND_S))
    waited = asyncio.ensure_future(found(other, "slow", wait=True))
    for tool, given in (("enter", pair.arguments("else")), ("look", arguments)):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await other.tools.CallTool(call(tool, given, call_id="slow"), timeout=BOUND_S)
        assert raised.value.code() is grpc.StatusCode.ALREADY_EXISTS
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await other.tools.CallTool(call("enter", arguments, call_id="slow"), timeout=0.3)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not followed.done()
    pair.let_go("slow")
    assert [text_of((await each).result) for each in (running, followed)] == ["slow", "slow"]
    assert text_of((await waited).result) == "slow"
    assert pair.entries().count("slow") == 1


async def test_a_sidecar_that_forgets_calls_earlier_does_not_start_beside_the_others(pair: Pair) -> None:
    folder = pair.folder.parent / "g"
    folder.mkdir()
    config = folder / "fumehood.toml"
    config.write_text(f'[journal]\nstore = "{pair.url}"\ncall_id_window_s = 60\n')
    done = await asyncio.to_thread(fumehood, "serve", "--config", str(config))
    assert done.status == 2
    assert "`call_id_window_s` of [journal] is 60 here and 86400 at another sidecar" in done.stderr
    assert "stop them all first" in done.stderr


async def test_a_watcher_sees_what_the_other_sidecar_records(pair: Pair) -> None:
    async with pair.sidecars[1].channel() as channel, asyncio.timeout(BOUND_S):
        watching = JournalServiceStub(channel).WatchEvents(jpb.WatchEventsRequest())
        await watching.read()
        await pair.clients[0].tools.CallTool(call("look", pair.arguments("seen"), call_id="seen"), timeout=BOUND_S)
        seen: set[str] = set()
        while "execute_end" not in seen:
            message = await watching.read()
            seen |= {each.type for each in message.events if each.call_id == "seen"}
        watching.cancel()


async def test_every_command_reads_it_and_verifying_over_grpc_does(pair: Pair) -> None:
    for number in range(3):
        request = call("look", pair.arguments(f"cli-{number}"), call_id=f"cli-{number}")
        request.context.request_id = "cli-run"
        await pair.clients[number % 2].tools.CallTool(request, timeout=BOUND_S)
    config = ["--config", str(pair.sidecars[0].folder / "fumehood.toml")]
    async with asyncio.timeout(BOUND_S):  # a checkpoint over them
        while True:
            bundle = pair.folder.parent / "bundle.html"
            done = await asyncio.to_thread(
                fumehood, "journal", "evidence", "--run", "cli-run", "-o", str(bundle), *config
            )
            if done.status == 0:
                break
            await asyncio.sleep(0.2)
    commands = (
        ["verify", "--json"],
        ["list", "--run", "cli-run", "--json"],
        ["show", "cli-run", "--json"],
        ["tail", "-n", "5", "--json"],
        ["export", "--run", "cli-run"],
        ["replay", "cli-run", "--json"],
        ["prune", "--before", "30d", "--events", "--json"],
    )
    said = {each[0]: await asyncio.to_thread(fumehood, "journal", *each, *config) for each in commands}
    assert {name: each.status for name, each in said.items()} == dict.fromkeys(said, 0)
    assert json.loads(said["verify"].stdout)["verified"]
    assert len(json.loads(said["list"].stdout)["calls"]) == 3
    assert len(said["replay"].stdout.splitlines()) == 3
    async with pair.sidecars[1].channel() as channel:
        stream = JournalServiceStub(channel).VerifyJournal(jpb.VerifyJournalRequest(), timeout=BOUND_S)
        verdict = [each async for each in stream][-1].verdict
    assert verdict.verified
    assert verdict.signed_events > 0


async def test_calls_of_a_killed_sidecar_are_settled_by_the_other(pair: Pair) -> None:
    other = pair.clients[1]
    arguments = pair.arguments("doomed", waits=True)
    with contextlib.ExitStack() as stack:
        third = await asyncio.to_thread(start, stack, pair.folder.parent / "c", pair.folder, pair.url)
        async with third.channel() as channel:
            client = ToolClient(third, channel)
            running = [
                asyncio.ensure_future(client.tools.CallTool(call(tool, arguments, call_id=f"doomed-{tool}")))
                for tool in ("enter", "look")
            ]
            async with asyncio.timeout(BOUND_S):
                while "doomed" not in pair.entries():  # noqa: ASYNC110 - nothing tells what a tool has done
                    await asyncio.sleep(0.01)
            await found(other, "doomed-look")
            followed = asyncio.ensure_future(
                other.tools.CallTool(call("enter", arguments, call_id="doomed-enter"), timeout=BOUND_S)
            )
            third.signal(signal.SIGKILL)
            third.wait()
            await asyncio.gather(*running, return_exceptions=True)
            assert (await followed).result.error.code == "TOOL_OUTCOME_UNKNOWN"
            looked = await found(other, "doomed-look", wait=True)
            assert looked.result.error.code == "TOOL_UNAVAILABLE"
            assert pair.entries().count("doomed") == 1
    settle = pb.ResolveCallRequest(
        call_id="doomed-enter", resolution=pb.RESOLUTION_EXECUTED, resolved_by="me", reason="seen"
    )
    both = await asyncio.gather(*(each.tools.ResolveCall(settle) for each in pair.clients), return_exceptions=True)
    codes = [each.code() for each in both if isinstance(each, grpc.aio.AioRpcError)]
    assert codes == [grpc.StatusCode.FAILED_PRECONDITION]


async def test_calls_of_a_killed_sidecar_run_on_the_others_where_their_callers_asked_for_that(pair: Pair) -> None:
    def asked(line: str, tool: str = "put") -> pb.CallToolRequest:
        request = call(tool, pair.arguments(line, waits=True), call_id=line)
        request.retry.after_crash = True
        return request

    one, other = pair.clients
    names = ("again", "followed", "raced", "read")
    requests = [asked("again"), asked("followed"), asked("raced"), asked("read", "look")]
    with contextlib.ExitStack() as stack:
        third = await asyncio.to_thread(start, stack, pair.folder.parent / "d", pair.folder, pair.url)
        async with third.channel() as channel:
            client = ToolClient(third, channel)
            control = call("put", pair.arguments("control", waits=True), call_id="control")
            running = [asyncio.ensure_future(client.tools.CallTool(each)) for each in (*requests, control)]
            async with asyncio.timeout(BOUND_S):
                began = {f"{each}:1" for each in (*names[:3], "control")}
                while not began <= set(pair.entries()):  # noqa: ASYNC110 - nothing tells what a tool has done
                    await asyncio.sleep(0.01)
            await found(other, "read")
            followed = asyncio.ensure_future(one.tools.CallTool(requests[1], timeout=BOUND_S))
            assert (await found(one, "again")).state == pb.CALL_STATE_RUNNING
            third.signal(signal.SIGKILL)
            third.wait()
            await asyncio.gather(*running, return_exceptions=True)
            for each in (*names, "control"):  # not before its death, in which it could end them itself
                pair.let_go(each)
    assert (await found(other, "again", wait=True)).state == pb.CALL_STATE_INTERRUPTED
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await other.tools.CallTool(call("put", pair.arguments("again"), call_id="again"), timeout=BOUND_S)
    assert reason_of(raised.value) == "CALL_ID_IN_USE"
    again, read, *raced = await asyncio.gather(
        other.tools.CallTool(requests[0], timeout=BOUND_S),
        one.tools.CallTool(requests[3], timeout=BOUND_S),
        *(each.tools.CallTool(requests[2], timeout=BOUND_S) for each in pair.clients),
    )
    results = [each.result for each in (again, await followed, *raced)]
    assert [(each.details_json, each.attempts) for each in results] == [("2", 2)] * 4
    assert text_of(read.result) == "read"
    unknown = (await other.tools.CallTool(control, timeout=BOUND_S)).result
    assert (unknown.error.code, unknown.attempts) == ("TOOL_OUTCOME_UNKNOWN", 1)
    ran = [each for each in pair.entries() if each.partition(":")[0] in {*names, "control"}]
    assert sorted(ran) == sorted([*(f"{each}:{attempt}" for each in names[:3] for attempt in (1, 2)), "control:1"])
    with contextlib.closing(DatabasePlace(Database(pair.url)).open_reader()) as reader:
        for name in names[:3]:
            events = [decode(each.body) for each in reader.events_of_call(name)]
            kinds = ["execute_start", "execute_attempt", "execute_taken_over", "execute_attempt", "execute_end"]
            assert [(each["type"], each["number"]) for each in events] == [*zip(kinds, range(1, 6), strict=True)]
            assert events[2]["data"] == {"from_sidecar": events[0]["sidecar"]}
            assert [each["data"]["attempt"] for each in events if each["type"] == "execute_attempt"] == [1, 2]
            assert len({each["sidecar"] for each in events[2:]}) == 1
        assert verify(reader, public_keys(pair.sidecars[0].folder / ".fumehood")).fault is None
