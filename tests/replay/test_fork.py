"""A run goes on from an event of an earlier one: what was done before it is given, and never done again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import journal_service_pb2 as pb_journal
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood.v1.tool_pb2 import CallContext, ToolResult
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence.page import read
from fumehood_evidence.verification import verify
from fumehood_server.calls.forks import MAX_FORKS
from fumehood_server.journal.keys import public_keys

from tests.cli.command import fumehood
from tests.rpc.support import BOUND_S, metadata_of, reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from pathlib import Path
from fumehood_sdk import Plugin, Context

plugin = Plugin("diary", version="1.0.0")


@plugin.tool(side_effects="write", isolation="process")
def note(folder: str, line: str, times: int = 1) -> int:
    \"\"\"Adds a line, and says how many there are.\"\"\"
    path = Path(folder) / "diary"
    with path.open("a") as file:
        file.write((line + "\\n") * times)
    return len(path.read_text().splitlines())


@plugin.tool(side_effects="write", isolation="process")
def hang(folder: str) -> str:
    \"\"\"Adds a line and never answers.\"\"\"
    with (Path(folder) / "diary").open("a") as file:
        file.write("hung\\n")
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass


@plugin.tool(side_effects="none", isolation="process")
def tell(number: int) -> int:
    \"\"\"Gives it back.\"\"\"
    return number


@plugin.tool(side_effects="none", isolation="process")
def whisper(text: str) -> str:
    \"\"\"Of which nothing is kept.\"\"\"
    return text
"""
NO_FORK = "fork-" + "0" * 32


@dataclass
class Agent:
    """Calls tools and forks runs."""

    tools: Any
    journal: Any
    folder: Path

    @property
    def diary(self) -> list[str]:
        return (self.folder / "notes" / "diary").read_text().splitlines()

    async def call(self, run: str, tool: str, call_id: str = "", **arguments: Any) -> ToolResult:
        request = pb.CallToolRequest(
            tool=tool, arguments_json=json.dumps(arguments), call_id=call_id, context=CallContext(request_id=run)
        )
        response: pb.CallToolResponse = await self.tools.CallTool(request, timeout=BOUND_S)
        return response.result

    async def note(self, run: str, line: str, call_id: str = "", **more: Any) -> ToolResult:
        return await self.call(run, "note", call_id, folder=str(self.folder / "notes"), line=line, **more)

    async def hang(self, run: str) -> ToolResult:
        """In a run that is no fork it is cancelled, once it has written."""
        folder = str(self.folder / "notes")
        if run.startswith("fork-"):
            return await self.call(run, "hang", folder=folder)
        before, call_id = len(self.diary), f"{run}-hung"
        hung = asyncio.create_task(self.call(run, "hang", call_id, folder=folder))
        async with asyncio.timeout(BOUND_S):
            while len(self.diary) == before:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
        await self.tools.CancelCall(pb.CancelCallRequest(call_id=call_id), timeout=BOUND_S)
        return await hung

    async def events(self, run: str, *types: str) -> list[pb_journal.JournalEvent]:
        wanted = pb_journal.EventFilter(request_id=run, types=types)
        return [*(await self.journal.ListEvents(pb_journal.ListEventsRequest(filter=wanted, page_size=1000))).events]

    async def end_of(self, run: str, call_id: str) -> int:
        """The position of a call's end, once that is on disk."""
        await self.tools.GetCall(pb.GetCallRequest(call_id=call_id, wait=True), timeout=BOUND_S)
        events = await self.events(run, "execute_end", "execute_cancelled")
        return next(each.position for each in events if each.call_id == call_id)

    async def fork(self, run: str, position: int) -> pb_journal.ForkRunResponse:
        request = pb_journal.ForkRunRequest(request_id=run, from_position=position)
        begun: pb_journal.ForkRunResponse = await self.journal.ForkRun(request, timeout=BOUND_S)
        return begun

    async def recorded(self, run: str) -> int:
        """Make a run of two equal notes, a call whose outcome nobody knows, and one more. Where the third ended."""
        for call_id in ("a1", "a2"):
            await self.note(run, "a", f"{run}-{call_id}")
        assert (await self.hang(run)).is_error
        await self.note(run, "b", f"{run}-b")
        return await self.end_of(run, f"{run}-hung")


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "notes").mkdir()
        (folder / "notes").chmod(0o777)
        plugin = write_plugin(folder / "plugin", "diary", CODE)
        allowed = "".join(f'[plugin.tools.{tool}]\npermission = "allow"\n' for tool in ("note", "hang"))
        grants = (
            f'max_side_effects = "write"\nwrite = ["{folder / "notes"}"]\n{allowed}'
            '[plugin.tools.whisper]\npayloads = "off"\n'
        )
        with running_sidecar([(plugin, grants)], at=folder) as sidecar:
            yield sidecar


@pytest.fixture
async def agent(sidecar: Sidecar) -> AsyncIterator[Agent]:
    async with sidecar.channel() as channel:
        yield Agent(ToolServiceStub(channel), JournalServiceStub(channel), sidecar.folder)


async def refusal(answer: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return caught.value


async def test_a_forked_run_is_given_what_was_done_and_goes_on_live(agent: Agent, sidecar: Sidecar) -> None:
    position = await agent.recorded("r1")
    before = agent.diary
    begun = await agent.fork("r1", position)
    run = begun.request_id
    assert begun.recorded_calls == 3
    first, second, hung = await agent.note(run, "a"), await agent.note(run, "a"), await agent.hang(run)
    assert [each.recorded_call_id for each in (first, second, hung)] == ["r1-a1", "r1-a2", "r1-hung"]
    assert [int(each.details_json) for each in (first, second)] == [len(before) - 3, len(before) - 2]
    assert (first.call_id != "r1-a1", first.sandbox.backend != "", first.attempts) == (True, True, 1)
    assert json.loads(hung.error.details_json)["outcome_unknown"]
    assert agent.diary == before
    for line in ("b", "a"):
        live = await agent.note(run, line, f"{run}-{line}")
        assert (live.is_error, live.recorded_call_id) == (False, "")
    assert agent.diary == [*before, "b", "a"]
    served = [json.loads(each.body_json)["data"] for each in await agent.events(run, "outcome_served")]
    assert [each["source_call_id"] for each in served] == ["r1-a1", "r1-a2", "r1-hung"]
    assert (len(served[0]["result_sha256"]), served[2]["end_position"]) == (64, position)
    config = sidecar.folder / "fumehood.toml"
    shown = fumehood("journal", "show", run, "--config", config)
    assert (shown.status, shown.stdout.count("outcome_served"), "run_forked" in shown.stdout) == (0, 3, True)
    await signed(agent, run)
    file = sidecar.folder / "evidence.html"
    assert fumehood("journal", "evidence", "--run", run, "-o", str(file), "--config", config).status == 0
    found = verify(read(file.read_text()), public_keys(sidecar.folder / ".fumehood"))
    assert len(found.calls) == 2
    assert any("3 outcomes" in each for each in found.not_proven)


async def signed(agent: Agent, run: str) -> None:
    """Return once the sidecar has signed for all of a run, which it does a second after."""
    last = max(each.position for each in await agent.events(run))
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                stream = agent.journal.VerifyJournal(pb_journal.VerifyJournalRequest())
                if [each async for each in stream][-1].verdict.signed_events > last:
                    return
            await asyncio.sleep(0.1)


async def test_a_call_that_the_record_has_not_there_is_refused_and_named(agent: Agent) -> None:
    position = await agent.recorded("r2")
    before = agent.diary
    run = (await agent.fork("r2", position)).request_id
    for answer, expected, differs in (
        (agent.note(run, "other"), "r2-a1", "arguments"),
        (agent.call(run, "tell", number=1), "r2-a1", "tool"),
        (agent.note(run, "other", "r2-a2"), "r2-a2", "arguments"),
    ):
        error = await refusal(answer)
        assert (error.code(), reason_of(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "FORK_MISMATCH")
        assert metadata_of(error)["expected_call_id"] == expected
        assert metadata_of(error)["differs"] == differs
    assert agent.diary == before
    assert (await agent.note(run, "b", "r2-live")).recorded_call_id == ""  # the record has it after the fork: it runs
    assert agent.diary == [*before, "b"]
    await agent.end_of(run, "r2-live")
    assert len(await agent.events(run, "request_refused")) == 3


async def test_ids_of_the_earlier_run_stand_for_its_calls_and_are_kept(agent: Agent) -> None:
    position = await agent.recorded("r3")
    run = (await agent.fork("r3", position)).request_id
    before = agent.diary
    for _ in range(2):  # a call that is repeated by its id gets what it got
        assert (await agent.note(run, "a", "r3-a2")).recorded_call_id == "r3-a2"
    mine = await agent.note(run, "a", "mine", times=1)
    assert mine.recorded_call_id == "r3-a1"
    for _ in range(MAX_FORKS + 1):  # so many are in memory: what this one has given comes from the journal then
        other = (await agent.fork("r3", position)).request_id
        assert (await agent.note(other, "a")).recorded_call_id == "r3-a1"
    assert (await agent.note(run, "a", "mine")).recorded_call_id == "r3-a1"
    assert reason_of(await refusal(agent.note(run, "a"))) == "FORK_MISMATCH"  # both were given, and one is left
    assert (await agent.hang(run)).recorded_call_id == "r3-hung"
    assert reason_of(await refusal(agent.note(run, "b", "r3-b"))) == "CALL_ID_IN_USE"
    assert agent.diary == before


async def test_calls_side_by_side_are_matched_by_call(agent: Agent) -> None:
    await asyncio.gather(*(agent.call("r4", "tell", f"r4-{number}", number=number) for number in range(8)))
    position = max([await agent.end_of("r4", f"r4-{number}") for number in range(8)])
    run = (await agent.fork("r4", position)).request_id
    results = await asyncio.gather(*(agent.call(run, "tell", number=number) for number in reversed(range(8))))
    assert [each.recorded_call_id for each in results] == [f"r4-{number}" for number in reversed(range(8))]
    assert (await agent.call(run, "tell", "r4-live", number=8)).recorded_call_id == ""
    again = await agent.fork(run, await agent.end_of(run, "r4-live"))
    assert again.recorded_calls == 9  # a fork of the fork: what was given to it, and what it ran
    forked = [await agent.call(again.request_id, "tell", number=number) for number in range(10)]
    assert [bool(each.recorded_call_id) for each in forked] == [True] * 9 + [False]


async def test_a_run_is_not_forked_where_the_record_does_not_say_enough(agent: Agent) -> None:
    await agent.call("r5", "whisper", "r5-1", text="psst")
    await agent.call("r6", "tell", "r6-1", number=1)
    whispered, told = await agent.end_of("r5", "r5-1"), await agent.end_of("r6", "r6-1")
    for run, position, reason in (
        ("r5", whispered, "RUN_NOT_FORKABLE"),
        ("r5", told, "RUN_NOT_FORKABLE"),
        ("r6", 1 << 40, "RUN_NOT_FORKABLE"),
        ("nobody", told, "RUN_NOT_FOUND"),
        ("", told, "REQUEST_INVALID"),
        ("r6", -1, "REQUEST_INVALID"),
    ):
        assert reason_of(await refusal(agent.fork(run, position))) == reason
    assert (await agent.fork("r6", told)).recorded_calls == 1
    assert reason_of(await refusal(agent.call(NO_FORK, "tell", number=1))) == "RUN_NOT_FOUND"
    assert not (await agent.call("fork-me", "tell", number=1)).is_error


async def test_the_command_line_forks_and_calls(agent: Agent, sidecar: Sidecar) -> None:
    await agent.call("r7", "tell", "r7-1", number=7)
    position = await agent.end_of("r7", "r7-1")
    address = ("--address", sidecar.target)
    done = fumehood("journal", "replay", "r7", "--from", str(position), "--json", *address)
    begun = json.loads(done.stdout)
    assert (begun["source_run"], begun["from_position"], begun["recorded_calls"]) == ("r7", position, 1)
    for recorded in ("r7-1", ""):
        called = fumehood("call", "tell", "number=7", "--run", begun["run_id"], "--json", *address)
        assert json.loads(called.stdout)["recorded_call_id"] == recorded
    said = fumehood("journal", "replay", "r7", "--from", str(position), *address)
    assert said.stdout.strip().startswith("fork-")
    assert fumehood("journal", "replay", "r7", "--from", "1", "--verify", *address).status == 2
    assert fumehood("journal", "replay", "r7", "--from", "0", "--json", *address).error["code"] == "RUN_NOT_FORKABLE"
