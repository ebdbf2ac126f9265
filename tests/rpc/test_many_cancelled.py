"""A thousand calls in flight, of which many are cancelled at any moment, in each way that there is."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.journal.reading import Recorded
from tests.sidecar import running_sidecar, write_plugin

CODE = """
import asyncio
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("many", version="1.0.0", concurrency=1024)


@plugin.tool(side_effects="write", isolation="process")
async def put(folder: str, seconds: float, ctx: Context) -> str:
    \"\"\"Waits in its midst, and has its effect at its beginning.\"\"\"
    with (Path(folder) / "put").open("a") as file:
        file.write(ctx.call_id + "\\n")
    ctx.update("there")
    await asyncio.sleep(seconds)
    return ctx.call_id


@plugin.tool(side_effects="none", isolation="process")
def nap(seconds: float, ctx: Context) -> str:
    \"\"\"Waits in a thread.\"\"\"
    ctx.sleep(seconds)
    return ctx.call_id
"""
CALLS = 1_000
BOUND_S = 90
ENDS = {None, "CANCELLED_SIGNAL", "CANCELLED_TIMEOUT", "TOOL_TIMEOUT"}
SEED = 13


@pytest.mark.slow("a thousand calls at random")
async def test_each_of_a_thousand_calls_in_flight_has_one_outcome_whoever_cancels_it_when() -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same moments each time
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        things = folder / "things"
        things.mkdir()
        things.chmod(0o777)
        plugin = write_plugin(folder / "plugin", "many", CODE, manifest="concurrency = 1024\n")
        lines = f'max_side_effects = "write"\nwrite = ["{things}"]\n[plugin.tools.put]\npermission = "allow"\n'
        server = "max_concurrent_calls = 4096"
        with running_sidecar([(plugin, lines)], server=server, at=folder) as sidecar:
            async with asyncio.timeout(BOUND_S), sidecar.channel() as channel, sidecar.channel() as other:
                calls = Calls(chance, things, channel, other)
                told = await calls.run()
                assert Counter(told.values()).keys() <= ENDS | {"left"}
                stub: Any = ToolServiceStub(channel)
                results = await asyncio.gather(*(_outcome(stub, each, told[each]) for each in told))
                found = {each: result for each, result in zip(told, results, strict=True) if result is not None}
            sidecar.signal()
            sidecar.wait()
        recorded = Recorded(folder)
        starts = Counter(each["call_id"] for each in recorded.events("execute_start"))
        ended = (recorded.events(kind) for kind in ("execute_end", "execute_cancelled"))
        ends = Counter(each["call_id"] for events in ended for each in events)
        assert starts == ends == Counter(found.keys())  # one of each
        for call_id, result in found.items():
            code = told[call_id]
            assert code in {"left", result.error.code if result.is_error else None}, call_id
            assert result.is_error or result.details_json == json.dumps(call_id)
        effects = Counter((things / "put").read_text().split())
        assert set(effects.values()) == {1}
        assert recorded.verified().fault is None
        outcomes = Counter(each.error.code if each.is_error else None for each in found.values())
        assert min(outcomes[None], outcomes["CANCELLED_SIGNAL"], outcomes["TOOL_TIMEOUT"]) > CALLS // 100, outcomes


async def _outcome(stub: Any, call_id: str, code: str | None) -> Any:
    try:
        return (await stub.GetCall(pb.GetCallRequest(call_id=call_id, wait=True))).result
    except grpc.aio.AioRpcError as error:
        if (error.code(), code) == (grpc.StatusCode.NOT_FOUND, "left"):  # before it reached the sidecar
            return None
        raise


class Calls:
    def __init__(self, chance: random.Random, things: Path, channel: grpc.aio.Channel, other: grpc.aio.Channel) -> None:
        self.chance = chance
        self.things = things
        self.stub: Any = ToolServiceStub(channel)
        self.other: Any = ToolServiceStub(other)

    async def run(self) -> dict[str, str | None]:
        """How each call's own caller was told that it ended; "left" for one that did not wait for it."""
        session = self.stub.Session()
        async with asyncio.TaskGroup() as tasks:
            answers = tasks.create_task(self._answers(session))
            unary = [tasks.create_task(self._unary(f"u{n}")) for n in range(CALLS // 4)]
            streams = [tasks.create_task(self._streamed(f"t{n}")) for n in range(CALLS // 4)]
            names = [f"s{n}" for n in range(CALLS // 2)]
            for each in names:
                await session.write(pb.SessionRequest(call=self._call(each), updates=self.chance.random() < 0.5))
            for each in names:
                if self.chance.random() < 0.4:
                    await session.write(pb.SessionRequest(cancel=pb.CancelCallRequest(call_id=each)))
                    await asyncio.sleep(self.chance.random() / 500)
            await session.done_writing()
        return answers.result() | dict(each.result() for each in (*unary, *streams))

    def _call(self, call_id: str) -> pb.CallToolRequest:
        seconds = self.chance.choice([0.0, 0.3, 1.0, 3.0])  # longer than a slow machine needs to begin them all
        request = pb.CallToolRequest(call_id=call_id)
        if self.chance.random() < 0.7:
            request.tool, request.arguments_json = "put", json.dumps({"folder": str(self.things), "seconds": seconds})
        else:
            request.tool, request.arguments_json = "nap", json.dumps({"seconds": seconds / 10})
        if self.chance.random() < 0.2:
            request.timeout.FromMilliseconds(self.chance.randrange(1, 2_000))
        return request

    async def _unary(self, call_id: str) -> tuple[str, str | None]:
        call = self.stub.CallTool(self._call(call_id))

        async def result() -> Any:
            return (await call).result

        return call_id, await self._ended(call_id, call, result())

    async def _streamed(self, call_id: str) -> tuple[str, str | None]:
        stream = self.stub.StreamTool(pb.StreamToolRequest(call=self._call(call_id)))

        async def result() -> Any:
            while not (event := await stream.read()).HasField("finished"):
                pass
            return event.finished

        return call_id, await self._ended(call_id, stream, result())

    async def _ended(self, call_id: str, call: Any, answer: Any) -> str | None:
        how = self.chance.choice(["waits", "asks", "leaves"])
        waits = asyncio.create_task(answer)
        if how != "waits":
            await asyncio.sleep(self.chance.random())
        if how == "asks":
            try:
                await self.other.CancelCall(pb.CancelCallRequest(call_id=call_id))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:  # it has ended, or did not begin
                    raise
        elif how == "leaves":
            call.cancel()
        try:
            result = await waits
        except asyncio.CancelledError:
            return "left"
        return result.error.code if result.is_error else None

    async def _answers(self, session: Any) -> dict[str, str | None]:
        ended: dict[str, str | None] = {}
        while (event := await session.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
            if event.HasField("finished"):
                assert event.finished.call_id not in ended
                ended[event.finished.call_id] = event.finished.error.code if event.finished.is_error else None
        return ended
