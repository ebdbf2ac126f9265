"""Plugins whose frames and logs are costly to read. The caller is an ordinary one."""

from __future__ import annotations

import asyncio
import json

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import call
from tests.soak.arena import CALL_TIMEOUT_S, Arena


async def empty_fields(arena: Arena) -> None:
    """Frames of 4 MiB that hold two million fields."""
    async with arena.channel() as channel:
        await arena.repeat(lambda: arena.call(channel, "empty_headers"))
        await arena.call(channel, "empty_blocks")


async def many_fields(arena: Arena) -> None:
    """Frames that hold as many fields as are allowed."""
    async with arena.channel() as channel:
        await arena.repeat(lambda: arena.call(channel, "many_fields"), lanes=2)


async def details_twice(arena: Arena) -> None:
    """Results that are costly to check."""
    async with arena.channel() as channel:
        await arena.repeat(lambda: arena.call(channel, "keys_twice"), lanes=2)


async def updates(arena: Arena) -> None:
    """Very many updates to a caller that reads them."""
    async with arena.channel() as channel:

        async def stream() -> None:
            request = pb.StreamToolRequest(call=call("updates"))

            async def read() -> None:
                async for answer in ToolServiceStub(channel).StreamTool(request, timeout=CALL_TIMEOUT_S):
                    if answer.HasField("finished"):
                        arena.outcomes[answer.finished.error.code or "ok"] += 1

            await arena.counted(read())

        await arena.repeat(stream, lanes=2)


async def questions(arena: Arena) -> None:
    """Questions of a plugin that asks on and on, to a caller who answers each with as much as may be that is wrong."""
    await _ask(arena, "questions", json.dumps({f"colour-{number}": "green" for number in range(2000)}))


async def costly_patterns(arena: Arena) -> None:
    """Questions whose schemas take seconds to build, to a caller who takes questions and to one who doesn't."""
    async with arena.channel() as channel:
        await asyncio.gather(
            _ask(arena, "costly_patterns", "{}"),
            arena.repeat(lambda: arena.call(channel, "costly_patterns"), lanes=2),
        )


async def _ask(arena: Arena, tool: str, answer_json: str) -> None:
    async with arena.channel() as channel:
        tools = ToolServiceStub(channel)

        async def stream() -> None:
            request = pb.StreamToolRequest(call=call(tool, takes_questions=True))

            async def read() -> None:
                async for event in tools.StreamTool(request, timeout=CALL_TIMEOUT_S):
                    if event.HasField("question"):
                        given = pb.AnswerQuestionRequest(
                            call_id=event.question.call_id,
                            question_id=event.question.question_id,
                            action=tool_pb2.ANSWER_ACTION_ACCEPT,
                            content_json=answer_json,
                        )
                        await arena.counted(tools.AnswerQuestion(given, timeout=CALL_TIMEOUT_S))
                    if event.HasField("finished"):
                        arena.outcomes[event.finished.error.code or "ok"] += 1

            await arena.counted(read())

        await arena.repeat(stream, lanes=8)


async def chatty(arena: Arena) -> None:
    """Log lines that are costly to escape, and very many."""
    async with arena.channel() as channel:
        await asyncio.gather(
            arena.repeat(lambda: arena.call(channel, "controls")),
            arena.repeat(lambda: arena.call(channel, "short_lines")),
        )
