"""What tests of runs share: a sidecar with a plugin of each kind of tool, and requests to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1.orchestration_service_pb2_grpc import OrchestrationServiceStub

from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar, running_sidecar, write_plugin

TIMEOUT_S = 60.0

NOTES = '''
    import time
    from pathlib import Path
    from fumehood_sdk import Content, Context, Plugin

    plugin = Plugin("notes", version="1.0.0")

    @plugin.tool(side_effects="none", idempotent=True)
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @plugin.tool(side_effects="none")
    def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    @plugin.tool(side_effects="none")
    def stop() -> Content:
        """Ask for the end."""
        return Content("stopped", terminate=True)

    @plugin.tool(side_effects="none", timeout_s=30)
    def wait(seconds: float, ctx: Context, updates: int = 1) -> str:
        """Wait."""
        for number in range(updates):
            ctx.update("waiting", progress=number, total=updates)
        time.sleep(seconds)
        return "waited"

    @plugin.tool(side_effects="read", requires=["read"], timeout_s=60)
    def hold(path: str, ctx: Context, updates: int = 1) -> str:
        """Wait until there is a file."""
        for number in range(updates):
            ctx.update("waiting", progress=number, total=updates)
        while not Path(path).exists():
            time.sleep(0.01)
        return "let go"

    @plugin.tool(side_effects="write", requires=["write"])
    def note(path: str, text: str) -> str:
        """Append a line to a file."""
        with Path(path).open("a") as file:
            file.write(text + "\\n")
        return "noted"

    @plugin.tool(side_effects="write", requires=["write"], timeout_s=30)
    def slow_note(path: str, text: str, seconds: float, ctx: Context) -> str:
        """Append a line to a file, and take long."""
        note(path, text)
        ctx.update("noted")
        time.sleep(seconds)
        return "noted"
'''


@contextlib.contextmanager
def model_sidecar(
    model: ScriptedModel | None,
    folder: Path,
    *,
    more: str = "",
    engine: str = "",
    raw: bool = False,
    permission: str = "allow",
    at: Path | None = None,
    server: str = "",
) -> Iterator[Sidecar]:
    """A sidecar with the plugin `notes`, and the scripted model's engine.

    The plugin may write in `folder / "notes"`, and read in `folder / "signals"`.
    """
    plugin = folder / "plugin"
    if not plugin.exists():
        write_plugin(plugin, "notes", NOTES)
    written = folder / "notes"
    written.mkdir(exist_ok=True)
    written.chmod(0o777)
    table = "" if model is None else model.engine_table(raw=raw, more=engine)
    signals = folder / "signals"
    signals.mkdir(exist_ok=True)
    signals.chmod(0o755)
    grants = f'max_side_effects = "write"\nread = [{json.dumps(str(signals))}]\nwrite = [{json.dumps(str(written))}]\n'
    for name in ("note", "slow_note"):
        grants += f'[plugin.tools.{name}]\npermission = "{permission}"\n'
    with running_sidecar([(plugin, grants)], more=f"{table}\n{more}", at=at, server=server) as sidecar:
        yield sidecar


def asked(text: str = "Go.", **fields: Any) -> pb.SystemRequest:
    """A request of one message."""
    message = pb.Message(role=pb.MESSAGE_ROLE_USER, text=text)
    return pb.SystemRequest(messages=[message], **fields)


@contextlib.asynccontextmanager
async def runs_of(sidecar: Sidecar) -> AsyncIterator[OrchestrationServiceStub]:
    """The service, for a client."""
    async with sidecar.channel() as channel:
        yield OrchestrationServiceStub(channel)


async def run(stub: Any, request: pb.SystemRequest, metadata: Any = None) -> pb.SystemResponse:
    """One run's response."""
    answer = await stub.Run(pb.RunRequest(request=request), timeout=TIMEOUT_S, metadata=metadata)
    return answer.response


async def events_of(stub: Any, request: pb.SystemRequest, after: int = 0) -> list[pb.StreamRunResponse]:
    """All that a stream tells."""
    call = stub.StreamRun(pb.StreamRunRequest(request=request, after_sequence=after), timeout=TIMEOUT_S)
    return [each async for each in call]


def kinds(events: list[pb.StreamRunResponse]) -> list[str]:
    """What happened, in words."""
    return [str(each.WhichOneof("event")) for each in events]


def refused(call: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str]:
    """The code and text of a refusal."""
    return call.code(), call.details() or ""
