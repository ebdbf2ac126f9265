"""Programs that serve hooks, well and badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from fumehood.v1 import hook_service_pb2 as hpb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.hook_service_pb2_grpc import HookServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.sidecar import Sidecar

BOUND_S = 60.0
Question = hpb.HookQuestion
Decide = Callable[[Question], "hpb.HookAnswer | None"]

CODE = """
import os
from pathlib import Path
from pydantic import BaseModel
from fumehood_sdk import Blob, Plugin, Text, ToolError

plugin = Plugin("house", version="1.0.0")


class Said(BaseModel):
    said: str


@plugin.tool(side_effects="none", isolation="process")
def say(text: str, times: int = 1) -> Said:
    \"\"\"Says it so many times.\"\"\"
    return Said(said=text * times)


@plugin.tool(side_effects="none", isolation="process")
def show(text: str) -> Text:
    \"\"\"Shows it.\"\"\"
    if text == "fail":
        raise ToolError("it broke")
    return Text(text)


@plugin.tool(side_effects="write", isolation="process")
def note(folder: str, line: str) -> int:
    \"\"\"Adds a line.\"\"\"
    path = Path(folder) / "diary"
    with path.open("a") as file:
        file.write(line + "\\n")
    return len(path.read_text().splitlines())
"""


def allow(_question: Question) -> hpb.HookAnswer:
    return hpb.HookAnswer(allow=hpb.HookAllow())


def deny(reason: str) -> Decide:
    return lambda _: hpb.HookAnswer(deny=hpb.HookDeny(reason=reason))


def arguments(reason: str = "", **new: object) -> Decide:
    """Before the call these are put beside what there is."""

    def decide(question: Question) -> hpb.HookAnswer:
        if question.HasField("result"):
            return allow(question)
        text = json.dumps({**json.loads(question.call.arguments_json), **new})
        return hpb.HookAnswer(change_arguments=hpb.HookChangeArguments(arguments_json=text, reason=reason))

    return decide


def result(text: str = "", details: object = None, *, terminate: bool | None = None, reason: str = "") -> Decide:
    """After the call this is put in place of its result."""

    def decide(question: Question) -> hpb.HookAnswer:
        if not question.HasField("result"):
            return allow(question)
        changed = hpb.HookChangeResult(terminate=terminate, reason=reason)
        if text or details is not None:
            if text:
                changed.output.content.add(text=text)
            changed.output.details_json = "" if details is None else json.dumps(details)
        return hpb.HookAnswer(change_result=changed)

    return decide


class Hook:
    """A stream that serves a hook, and answers by `decide`. None is no answer."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.asked: list[Question] = []
        self.came = asyncio.Event()

    async def question(self) -> Question:
        """The next one, unanswered."""
        message = await asyncio.wait_for(self.stream.read(), BOUND_S)
        assert isinstance(message, hpb.InterceptResponse), message
        assert message.HasField("question")
        return message.question

    async def answer(self, question: Question | int, answer: hpb.HookAnswer) -> None:
        answer.question_id = question if isinstance(question, int) else question.question_id
        await self.stream.write(hpb.InterceptRequest(answer=answer))

    async def run(self, decide: Decide, *, quietly: bool = True) -> None:
        """Until the stream ends, by its own test if it may do so quietly."""
        with contextlib.suppress(*((grpc.RpcError, asyncio.CancelledError) if quietly else ())):
            while (message := await self.stream.read()) is not grpc.aio.EOF:
                self.asked.append(message.question)
                self.came.set()
                answer = decide(message.question)
                if answer is not None:
                    await self.answer(message.question, answer)

    async def ended(self) -> grpc.StatusCode:
        """How the sidecar has ended it."""
        return await asyncio.wait_for(self.stream.code(), BOUND_S)


class Client:
    """Calls tools and serves hooks."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Any = None) -> None:
        self.tools: Any = ToolServiceStub(channel)
        self.hooks: Any = HookServiceStub(channel)
        self.metadata = metadata

    async def call(self, tool: str, call_id: str = "", **values: object) -> tool_pb2.ToolResult:
        request = pb.CallToolRequest(tool=tool, arguments_json=json.dumps(values), call_id=call_id)
        found: tool_pb2.ToolResult = (
            await self.tools.CallTool(request, timeout=BOUND_S, metadata=self.metadata)
        ).result
        return found

    async def connect(self, hook: str) -> Hook:
        """A stream that serves the hook, and answers nothing."""
        stream = self.hooks.Intercept(metadata=self.metadata)
        await stream.write(hpb.InterceptRequest(serve=hpb.ServeHook(hook=hook)))
        message = await stream.read()
        assert message.HasField("serving"), message
        return Hook(stream)

    @contextlib.asynccontextmanager
    async def serving(self, hook: str, decide: Decide = allow) -> AsyncIterator[Hook]:
        """Serve it within the block, and see the sidecar know that it is gone."""
        before = (await self.listed())[hook].connections
        served = await self.connect(hook)
        task = asyncio.create_task(served.run(decide))
        try:
            yield served
        finally:
            served.stream.cancel()
            await task
            await self.until_gone(hook, before)

    async def listed(self) -> dict[str, hpb.Hook]:
        answer = await self.hooks.ListHooks(hpb.ListHooksRequest(), metadata=self.metadata)
        return {each.name: each for each in answer.hooks}

    async def until_gone(self, hook: str, left: int = 0) -> None:
        async with asyncio.timeout(BOUND_S):
            while (await self.listed())[hook].connections > left:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def client_of(sidecar: Sidecar, target: str = "", metadata: Any = None) -> AsyncIterator[Client]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target or sidecar.target, options=options) as channel:
        yield Client(channel, metadata)


def details(found: tool_pb2.ToolResult) -> dict[str, Any]:
    """Of its error."""
    parsed: dict[str, Any] = json.loads(found.error.details_json)
    return parsed


def output(found: tool_pb2.ToolResult) -> Any:
    """Its structured output."""
    assert not found.is_error, found.error
    return json.loads(found.details_json)


def text(found: tool_pb2.ToolResult) -> str:
    return "".join(each.text for each in found.content)
