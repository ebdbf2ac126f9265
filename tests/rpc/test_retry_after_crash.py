"""A call may run again after its sidecar was killed, where its caller asked for that and its tool allows it."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.journal.reading import Recorded, data
from tests.rpc.support import metadata_of, reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("shelf", version="1.0.0")


def _put(folder: str, name: str, hangs: int, ctx: Context) -> int:
    with (Path(folder) / name).open("a") as file:
        file.write(f"{ctx.attempt} {ctx.idempotency_key}\\n")
    ctx.update("there")
    if ctx.attempt <= hangs:
        time.sleep(3600)
    return ctx.attempt


@plugin.tool(side_effects="write", idempotent=True, isolation="process", timeout_s=3600)
def put(folder: str, name: str, hangs: int, ctx: Context) -> int:
    \"\"\"Puts something there, and hangs in its first attempts.\"\"\"
    return _put(folder, name, hangs, ctx)


@plugin.tool(side_effects="write", isolation="process")
def add(folder: str, name: str, hangs: int, ctx: Context) -> int:
    \"\"\"The same, and does not say that it may be done twice.\"\"\"
    return _put(folder, name, hangs, ctx)
"""
BOUND_S = 30
AGAIN = pb.RetryPolicy(after_crash=True)


class Shelf:
    """Where sidecars run one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorded = Recorded(folder)
        self.things = folder / "things"
        self.things.mkdir(mode=0o777)
        self.things.chmod(0o777)
        self.plugin = write_plugin(folder / "plugin", "shelf", CODE)

    def sidecar(self, put: str = "allow", more: str = "") -> AbstractContextManager[Sidecar]:
        tools = f'[plugin.tools.put]\npermission = "{put}"\n[plugin.tools.add]\npermission = "allow"\n'
        lines = f'max_side_effects = "write"\nwrite = ["{self.things}"]\nmax_workers = 16\n{tools}'
        return running_sidecar([(self.plugin, lines)], more=more, at=self.folder)

    def attempts(self, name: str) -> list[str]:
        path = self.things / name
        return path.read_text().splitlines() if path.exists() else []

    def call(self, name: str, tool: str = "put", hangs: int = 1, **fields: Any) -> pb.CallToolRequest:
        text = json.dumps({"folder": str(self.things), "name": name, "hangs": hangs})
        return pb.CallToolRequest(tool=tool, arguments_json=text, **({"call_id": name} | fields))


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Shelf(folder)


async def killed_under(sidecar: Sidecar, *calls: pb.CallToolRequest) -> None:
    """Kill it while these run, each after its effect."""
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        streams = [stub.StreamTool(pb.StreamToolRequest(call=each)) for each in calls]
        async with asyncio.timeout(BOUND_S):
            for stream in streams:
                async for event in stream:
                    if event.HasField("update"):
                        break
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()


async def test_what_was_under_way_runs_again_where_that_was_asked_for_and_has_one_outcome(shelf: Shelf) -> None:
    with shelf.sidecar() as sidecar:
        await killed_under(
            sidecar,
            shelf.call("asked", retry=AGAIN),
            shelf.call("twice", hangs=2, retry=AGAIN),
            shelf.call("not-asked"),
        )

    with shelf.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)

            async def state(call_id: str) -> Any:
                return (await stub.GetCall(pb.GetCallRequest(call_id=call_id, wait=True), timeout=BOUND_S)).state

            assert await state("asked") == pb.CALL_STATE_INTERRUPTED
            assert await state("not-asked") == pb.CALL_STATE_OUTCOME_UNKNOWN
            refused = (await stub.CallTool(shelf.call("not-asked", retry=AGAIN))).result
            assert refused.error.code == "TOOL_OUTCOME_UNKNOWN"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.CallTool(shelf.call("asked", hangs=0, retry=AGAIN))
            assert reason_of(caught.value) == "CALL_ID_IN_USE"
            # Two callers at once: one attempt, which both have the result of. It need not be asked for again.
            results = await asyncio.gather(*(stub.CallTool(shelf.call("asked")) for _ in range(2)))
            assert [(each.result.details_json, each.result.attempts) for each in results] == [("2", 2)] * 2
            assert (await stub.CallTool(shelf.call("asked", retry=AGAIN))).result.details_json == "2"
            assert shelf.attempts("asked") == ["1 asked", "2 asked"]
        await killed_under(sidecar, shelf.call("twice", hangs=2))

    with shelf.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub = ToolServiceStub(channel)
            again = (await stub.CallTool(shelf.call("twice", hangs=2))).result
            assert (again.details_json, again.attempts) == ("3", 3)
            assert (await stub.CallTool(shelf.call("asked"))).result.details_json == "2"
        sidecar.signal()
        sidecar.wait()
    assert shelf.attempts("not-asked") == ["1 not-asked"]
    events = {name: shelf.recorded.call(name) for name in ("asked", "twice", "not-asked")}
    for name, attempts in {"asked": 2, "twice": 3, "not-asked": 1}.items():
        types = ["execute_start", *["execute_attempt"] * attempts, "execute_end"]
        assert [each["type"] for each in events[name]] == types
        assert [each["number"] for each in events[name]] == [*range(1, attempts + 3)]
        assert [each["attempt"] for each in data(events[name], "execute_attempt")] == [*range(1, attempts + 1)]
        assert data(events[name], "execute_end")[0]["attempts"] == attempts
    assert shelf.recorded.verified().fault is None


async def test_what_may_not_run_twice_is_refused_before_it_runs(shelf: Shelf) -> None:
    async def refused(stub: Any, request: pb.CallToolRequest) -> tuple[grpc.StatusCode, str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CallTool(request)
        error = caught.value
        return error.code(), reason_of(error), metadata_of(error).get("why", "")

    failed = grpc.StatusCode.FAILED_PRECONDITION
    with shelf.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)
            request = shelf.call("added", "add", hangs=0, retry=AGAIN)
            assert await refused(stub, request) == (failed, "RETRY_REFUSED", "not_idempotent")
            assert shelf.attempts("added") == []
            request.ClearField("retry")
            assert (await stub.CallTool(request)).result.details_json == "1"
            assert (await stub.CallTool(shelf.call("put", hangs=0, retry=AGAIN))).result.details_json == "1"
            nameless = shelf.call("x", hangs=0, retry=AGAIN, call_id="")
            assert (await refused(stub, nameless))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
    with shelf.sidecar(more='[journal]\nstore = "off"\n') as sidecar:
        async with sidecar.channel() as channel:
            stub = ToolServiceStub(channel)
            request = shelf.call("off", hangs=0, retry=AGAIN)
            assert await refused(stub, request) == (failed, "RETRY_REFUSED", "not_recorded")
    assert shelf.attempts("off") == []


async def test_what_is_not_allowed_any_more_is_not_run_again_and_nobody_knows_its_outcome(shelf: Shelf) -> None:
    with shelf.sidecar() as sidecar:
        await killed_under(sidecar, shelf.call("denied", retry=AGAIN))
    with shelf.sidecar(put="deny") as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)
            result = (await stub.CallTool(shelf.call("denied", retry=AGAIN))).result
            assert (result.error.code, result.error.caused_by.code) == ("TOOL_OUTCOME_UNKNOWN", "TOOL_DENIED")
            assert result.attempts == 1
            recorded = await stub.GetCall(pb.GetCallRequest(call_id="denied"))
            assert recorded.state == pb.CALL_STATE_OUTCOME_UNKNOWN
            resolution = pb.ResolveCallRequest(
                call_id="denied", resolution=pb.RESOLUTION_EXECUTED, resolved_by="a person", reason="it is there"
            )
            assert not (await stub.ResolveCall(resolution)).result.is_error
    assert shelf.attempts("denied") == ["1 denied"]
