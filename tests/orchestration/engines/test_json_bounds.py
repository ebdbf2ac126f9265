"""Bounds of the JSON that an engine answers with, and of heads, beyond bytes: libraries parse each in one go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fumehood_server.model.json_counts import MAX_NODES, MAX_VALUES
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.conversion import ArgumentReader
from fumehood_server.orchestration.engines.engine import MAX_ANSWER_BYTES
from fumehood_server.orchestration.engines.transport import MAX_ERROR_BYTES
from fumehood_server.orchestration.messages import Message, Role, ToolUse

from tests.orchestration.engines.asking import asked, failed
from tests.orchestration.scripted import ScriptedModel, event, events

MALFORMED = Code.INFERENCE_MALFORMED_RESPONSE
MANY = json.dumps({"v": [[]] * MAX_NODES})
MARKS = "[],{:" * MAX_VALUES


def with_junk(junk: Any, content: str = "x") -> str:
    """An event that holds what no SDK asks for."""
    return event({"index": 0, "delta": {"content": content, "junk": junk}, "finish_reason": None})


@pytest.mark.parametrize(
    "chunks",
    [
        (with_junk([[]] * MAX_NODES),),
        (with_junk([1] * MAX_VALUES),),
        (': an odd "\n' + with_junk([[]] * MAX_NODES),),
        # SDKs parse what ends with the stream, and here a blank line of two kinds.
        (with_junk([[]] * MAX_NODES).strip() + "\n\r\n",),
    ],
    ids=["arrays", "numbers", "behind a quote", "at the end"],
)
async def test_an_event_that_holds_too_much_is_not_parsed(
    scripted_model: ScriptedModel, chunks: tuple[str, ...]
) -> None:
    scripted_model.answers_raw(*chunks, *(() if "\n\r\n" in chunks[0] else events({"content": "y"})))
    error = await failed(scripted_model.raw_url)
    assert (error.code, error.transient, "too many values" in str(error)) == (MALFORMED, False, True)


async def test_an_event_whose_text_has_as_many_brackets_is_whole(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(with_junk([], MARKS), *events({"content": "y"}))
    assert (await asked(scripted_model.raw_url)).message.text == MARKS + "y"


def _call(arguments: str) -> list[str]:
    call = {"index": 0, "id": "c0", "function": {"name": "add", "arguments": arguments}}
    return events({"tool_calls": [call]}, finish="tool_calls")


async def test_arguments_that_hold_too_much_are_no_answer(scripted_model: ScriptedModel) -> None:
    few = json.dumps({"v": [1] * 5000, "text": MARKS[:400_000]})
    scripted_model.answers_raw(*_call(few))
    scripted_model.answers_raw(*_call(MANY))
    assert (await asked(scripted_model.raw_url)).message.tool_uses[0].arguments_json == few
    error = await failed(scripted_model.raw_url)
    assert (error.code, error.transient, "arguments" in str(error)) == (MALFORMED, False, True)


async def test_arguments_of_a_conversation_that_hold_too_much_are_not_parsed_by_the_libraries() -> None:
    uses = (ToolUse(id="c0", tool="add", arguments_json=MANY), ToolUse(id="c1", tool="add", arguments_json='{"v":[]}'))
    unreadable = await ArgumentReader().unreadable([Message(role=Role.ASSISTANT, tool_uses=uses)])
    assert unreadable == {MANY}


@pytest.mark.parametrize(("status", "code"), [(400, Code.INFERENCE_ENGINE_ERROR), (500, Code.INFERENCE_ENGINE_ERROR)])
async def test_of_an_error_without_end_the_beginning_is_read(
    scripted_model: ScriptedModel, status: int, code: Code
) -> None:
    body = '{"error":{"message":"so it is","code":['
    scripted_model.answers_raw(
        body, "[]," * MAX_ERROR_BYTES, rounds=2 * MAX_ANSWER_BYTES // MAX_ERROR_BYTES, status=status
    )
    error = await failed(scripted_model.raw_url)
    assert (error.code, f"HTTP {status}" in str(error), "so it is" in str(error)) == (code, True, True)
    await scripted_model.abandoned(1)


@asynccontextmanager
async def serving(heads: bytes, *, endless: bool) -> AsyncIterator[str]:
    """A server that sends these before its answer, or for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            while endless:
                writer.write(heads)
                await writer.drain()
            body = "".join(events({"content": "fine"})).encode()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(heads + head + body)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_informational_heads_without_end_are_no_answer() -> None:
    async with serving(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000, endless=True) as url:
        error = await failed(url)
    assert (error.code, error.transient, "heads" in str(error)) == (MALFORMED, False, True)


async def test_an_answer_behind_some_informational_heads_is_whole() -> None:
    async with serving(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 16, endless=False) as url:
        assert (await asked(url)).message.text == "fine"
