"""Calls that are tried again by the real sidecar: their workers, their stream, their record, and kill -9 between."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest
from fumehood.v1 import journal_service_pb2 as pb_journal
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.journal.reading import data
from tests.rpc.test_retry_after_crash import Shelf, shelf
from tests.sidecar import write_plugin

__all__ = ["shelf"]

CODE = """
import os
from pathlib import Path
from fumehood_sdk import Context, Plugin, Transient

plugin = Plugin("shelf", version="1.0.0")


def _put(folder: str, name: str, fails: int, how: str, ctx: Context) -> str:
    with (Path(folder) / name).open("a") as file:
        file.write(f"{ctx.attempt} {ctx.idempotency_key}\\n")
    ctx.update(f"there {ctx.attempt}")
    if ctx.attempt <= fails:
        if how == "dies":
            os._exit(3)
        raise Transient("busy", retry_after_s=60 if how == "waits" else None)
    return f"{ctx.attempt}"


@plugin.tool(side_effects="write", idempotent=True, isolation="process", timeout_s=3600)
def put(folder: str, name: str, fails: int, how: str, ctx: Context) -> str:
    \"\"\"Puts something there, and fails in its first attempts.\"\"\"
    return _put(folder, name, fails, how, ctx)


@plugin.tool(side_effects="write", isolation="process")
def add(folder: str, name: str, fails: int, how: str, ctx: Context) -> str:
    \"\"\"The same, and does not say that it may be done twice.\"\"\"
    return _put(folder, name, fails, how, ctx)


@plugin.tool(side_effects="none", idle_timeout_s=4.0)
def talk(updates: int, ends: bool, ctx: Context) -> str:
    \"\"\"Talks every 0.25 s, and then no more.\"\"\"
    for _ in range(updates):
        ctx.sleep(0.25)
        ctx.update("still here")
    if not ends:
        ctx.sleep(3600)
    return "done"


@plugin.tool(side_effects="none")
def roll(fails: int, ctx: Context) -> str:
    \"\"\"Rolls in its first attempts as well, and fails there.\"\"\"
    rolled = ctx.side_effect("dice", lambda: os.urandom(4).hex())
    if ctx.attempt <= fails:
        raise Transient(f"rolled {rolled}")
    return f"{ctx.attempt}: {rolled} {ctx.now()}"
"""
BOUND_S = 30


def request(shelf: Shelf, name: str, tool: str = "put", fails: int = 2, how: str = "fails", **more: Any) -> Any:
    arguments = {"folder": str(shelf.things), "name": name, "fails": fails, "how": how}
    fields = {"call_id": name, "retry": pb.RetryPolicy(max_attempts=3)} | more
    return pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments), **fields)


@pytest.fixture
def retrying(shelf: Shelf) -> Shelf:
    shelf.plugin = write_plugin(shelf.folder / "retrying", "shelf", CODE)
    return shelf


async def test_attempts_are_one_call_in_the_stream_the_record_and_the_replay(retrying: Shelf) -> None:
    async def streamed(stub: Any, call: Any) -> list[Any]:
        return [each async for each in stub.StreamTool(pb.StreamToolRequest(call=call), timeout=BOUND_S)]

    with retrying.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)
            events = await streamed(stub, request(retrying, "busy"))
            kinds = [each.WhichOneof("event") for each in events]
            assert kinds == ["started", "update", "retry", "update", "retry", "update", "finished"]
            assert [each.update.sequence for each in events if each.HasField("update")] == [1, 2, 3]
            retries = [each.retry for each in events if each.HasField("retry")]
            assert [(each.call_id, each.attempts, each.error.message) for each in retries] == [
                ("busy", 1, "busy"),
                ("busy", 2, "busy"),
            ]
            assert all(
                each.delay.ToMilliseconds() in span
                for each, span in zip(retries, (range(74, 126), range(149, 251)), strict=True)
            )
            finished = events[-1].finished
            assert (finished.attempts, finished.is_error) == (3, False)
            assert retrying.attempts("busy") == ["1 busy", "2 busy", "3 busy"]

            died = (await stub.CallTool(request(retrying, "dies", fails=1, how="dies"), timeout=BOUND_S)).result
            assert (died.attempts, died.is_error) == (2, False)
            once = (await stub.CallTool(request(retrying, "once", "add", fails=1))).result
            assert (once.attempts, once.error.message, once.error.retryable) == (1, "busy", True)
            lost = (await stub.CallTool(request(retrying, "lost", "add", fails=1, how="dies"))).result
            assert (lost.attempts, lost.error.code) == (1, "TOOL_OUTCOME_UNKNOWN")

            session = stub.Session(iter_of(pb.SessionRequest(call=request(retrying, "in", fails=1), updates=True)))
            assert [each.WhichOneof("event") async for each in session] == ["update", "retry", "update", "finished"]

            rolled = pb.CallToolRequest(
                tool="roll", arguments_json='{"fails":1}', call_id="roll", retry=pb.RetryPolicy(max_attempts=2)
            )
            rolled.context.request_id = "run"
            assert (await stub.CallTool(rolled)).result.attempts == 2
            await stub.CallTool(request(retrying, "after", fails=0))  # on disk, as what was recorded before then is
            again: Any = JournalServiceStub(channel).ReplayRun(
                pb_journal.ReplayRunRequest(run="run", verify=True), timeout=BOUND_S
            )
            told = [each async for each in again]
            verdicts = [(each.verdict, each.not_run_because) for message in told for each in message.calls]
            assert verdicts == [(pb_journal.REPLAY_VERDICT_VERIFIED, "")]
        sidecar.signal()
        sidecar.wait()
    events = retrying.recorded.call("busy")
    assert [each["type"] for each in events if each["type"] != "execute_values"] == [
        "execute_start",
        *("execute_attempt", "execute_retry") * 2,
        "execute_attempt",
        "execute_end",
    ]
    assert [each["error"]["message"] for each in data(events, "execute_retry")] == ["busy"] * 2
    assert [each["outcome_unknown"] for each in data(retrying.recorded.call("dies"), "execute_retry")] == [True]
    assert [each["attempt"] for each in data(retrying.recorded.call("roll"), "execute_values")] == [1, 2]
    assert retrying.recorded.verified().fault is None


async def test_a_call_without_updates_ends_at_its_idle_timeout_and_one_with_them_goes_on(retrying: Shelf) -> None:
    with retrying.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)

            async def talk(updates: int, *, ends: bool) -> Any:
                text = json.dumps({"updates": updates, "ends": ends})
                return (await stub.CallTool(pb.CallToolRequest(tool="talk", arguments_json=text))).result

            went_on, silent, fell_silent = await asyncio.gather(
                talk(18, ends=True), talk(0, ends=False), talk(3, ends=False)
            )
            assert not went_on.is_error, went_on.error
            assert went_on.usage.wall_time.ToMilliseconds() > 4_000, "it took longer than its idle timeout"
            for result in (silent, fell_silent):
                assert result.error.code == "TOOL_TIMEOUT"
                details = json.loads(result.error.details_json)
                assert (details["reason"], details["bound"]) == ("idle_timeout", "idle")
                assert (details["limit"], details["value"]) == ("idle_timeout_s", 4.0)
            assert fell_silent.usage.wall_time.ToMilliseconds() >= 4_500
            listed = (await stub.GetTool(pb.GetToolRequest(name="talk"))).tool.definition
            assert listed.idle_timeout.ToMilliseconds() == 4_000
            assert not (await stub.GetTool(pb.GetToolRequest(name="roll"))).tool.definition.HasField("idle_timeout")


async def iter_of(request: Any) -> Any:
    yield request


async def test_a_sidecar_that_dies_between_attempts_leaves_what_is_known(retrying: Shelf) -> None:
    with retrying.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)
            calls = [
                request(retrying, "waits", fails=1, how="waits"),
                request(
                    retrying, "again", fails=1, how="waits", retry=pb.RetryPolicy(max_attempts=3, after_crash=True)
                ),
            ]
            streams = [stub.StreamTool(pb.StreamToolRequest(call=each)) for each in calls]
            async with asyncio.timeout(BOUND_S):
                for stream in streams:
                    async for event in stream:
                        if event.HasField("retry"):
                            break
                # What is written after both has what both have said on disk as well.
                await stub.CallTool(request(retrying, "after", fails=0))
            sidecar.signal(signal.SIGKILL)
            sidecar.wait()

    with retrying.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub = ToolServiceStub(channel)
            found = await stub.GetCall(pb.GetCallRequest(call_id="waits"))
            assert found.state == pb.CALL_STATE_ENDED, "what ran is known to have failed, and nothing ran when it died"
            error = found.result.error
            assert (error.code, error.retryable, error.caused_by.message) == ("TOOL_UNAVAILABLE", True, "busy")
            assert found.result.attempts == 1
            repeated = (await stub.CallTool(calls[0])).result
            assert repeated.error.code == "TOOL_UNAVAILABLE", "its id stands for its outcome"
            assert retrying.attempts("waits") == ["1 waits"]
            went_on = (await stub.CallTool(calls[1])).result
            assert (went_on.is_error, went_on.attempts) == (False, 2)
            assert retrying.attempts("again") == ["1 again", "2 again"]
        sidecar.signal()
        sidecar.wait()
    assert retrying.recorded.verified().fault is None
