"""Anthropic's API, by its own SDK: the same answers, bounds and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fumehood_server.config.engines import Constraint, Provider
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import FinishReason, OfferedTool
from fumehood_server.orchestration.messages import Message, Role, ToolUse
from fumehood_server.orchestration.request import Hints

from tests.orchestration.engines.asking import KEY, asked, failed, opened, question, user
from tests.orchestration.scripted import ScriptedModel

CLAUDE: dict[str, Any] = {"provider": Provider.ANTHROPIC, "model": "claude-sonnet-4-5"}
ADD = OfferedTool(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {}}})


async def test_text_comes_in_pieces_with_usage_and_the_key_in_its_header(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(KEY)
    scripted_model.says("It is a fume hood.", piece=6)
    pieces: list[str] = []
    async with opened(scripted_model.url, keys={"key": file}, secret="key", input_price=1.0, **CLAUDE) as engine:  # noqa: S106 - a name
        answer = await engine.infer(question(hints=Hints(max_tokens=9, temperature=0.5)), pieces.append)
    assert (answer.message.text, "".join(pieces), len(pieces)) == ("It is a fume hood.", "It is a fume hood.", 3)
    assert (answer.finish_reason, answer.usage.input_tokens > 0) == (FinishReason.STOP, True)
    (request,), (headers,) = scripted_model.requests(), scripted_model.headers()
    assert (request["max_tokens"], request["temperature"]) == (9, 0.5)
    assert (headers["x-api-key"], headers.get("authorization")) == (KEY, None)


async def test_parallel_calls_and_results_are_converted_both_ways(scripted_model: ScriptedModel) -> None:
    scripted_model.calls(("add", {"a": 1}, "toolu_1"), ("add", {"a": 2}, "toolu_2"), text="Both.")
    scripted_model.says("3")
    async with opened(scripted_model.url, **CLAUDE) as engine:
        first = await engine.infer(question(tools=(ADD,)), lambda _: None)
        results = tuple(
            Message(role=Role.TOOL, text=text, tool_use_id=use.id, tool="add", is_error=text == "no")
            for use, text in zip(first.message.tool_uses, ("1", "no"), strict=True)
        )
        second = await engine.infer(question(user("1 + 2?"), first.message, *results, tools=(ADD,)), lambda _: None)
    assert (first.finish_reason, first.message.text) == (FinishReason.TOOL, "Both.")
    assert [use.id for use in first.message.tool_uses] == ["toolu_1", "toolu_2"]
    assert second.message.text == "3"
    sent = scripted_model.requests()[1]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool"]
    assert [each["tool_call_id"] for each in sent[2:]] == ["toolu_1", "toolu_2"]


async def test_arguments_in_the_conversation_that_are_no_object_are_sent_as_one(scripted_model: ScriptedModel) -> None:
    scripted_model.says("x")
    broken = Message(role=Role.ASSISTANT, tool_uses=(ToolUse(id="u1", tool="add", arguments_json="{bro"),))
    told = Message(role=Role.TOOL, text="no JSON", tool_use_id="u1", tool="add", is_error=True)
    answer = await asked(scripted_model.url, question(user("x"), broken, told, tools=(ADD,)), **CLAUDE)
    assert answer.message.text == "x"


@pytest.mark.parametrize(
    ("status", "message", "code", "transient"),
    [
        (400, "prompt is too long: 210000 tokens > 200000 maximum", Code.INFERENCE_CONTEXT_EXCEEDED, False),
        (400, "max_tokens: must be positive", Code.INFERENCE_ENGINE_ERROR, False),
        (401, "invalid x-api-key", Code.INFERENCE_MODEL_UNAVAILABLE, False),
        (429, "slow down", Code.INFERENCE_MODEL_UNAVAILABLE, True),
        (500, "it broke", Code.INFERENCE_ENGINE_ERROR, True),
        (529, "overloaded", Code.INFERENCE_MODEL_UNAVAILABLE, True),
    ],
)
async def test_failures_have_the_same_codes(
    scripted_model: ScriptedModel, status: int, message: str, code: Code, transient: bool
) -> None:
    scripted_model.fails(status, message, retry_after=3)
    error = await failed(scripted_model.url, **CLAUDE)
    assert (error.code, error.transient, len(scripted_model.requests())) == (code, transient, 1)
    assert error.retry_after_s == (3.0 if status == 429 else None)


async def test_a_stream_that_is_cut_is_no_answer(scripted_model: ScriptedModel) -> None:
    scripted_model.says("It is a fume hood, of course.", piece=3, truncateAfterChunks=4)
    assert (await failed(scripted_model.url, **CLAUDE)).transient


@pytest.mark.parametrize(
    "last", ["", 'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 0}\n\n']
)
async def test_a_stream_that_just_ends_is_no_answer(scripted_model: ScriptedModel, last: str) -> None:
    begun = (
        'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "type": "message", "role":'
        ' "assistant", "model": "c", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}\n\n'
        'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block":'
        ' {"type": "text", "text": ""}}\n\n'
        'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta":'
        ' {"type": "text_delta", "text": "It is"}}\n\n'
    )
    scripted_model.answers_raw(begun + last)
    error = await failed(f"{scripted_model.url}/raw", **CLAUDE)
    assert (error.code, error.transient) == (Code.INFERENCE_MALFORMED_RESPONSE, True)


async def test_an_answer_for_ever_is_ended(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(": nothing\n\n" * 5000, rounds=-1)
    error = await failed(f"{scripted_model.url}/raw", **CLAUDE)
    assert (error.code, error.transient) == (Code.INFERENCE_MALFORMED_RESPONSE, False)
    await scripted_model.abandoned(1)


async def test_a_schema_is_sent_where_the_engine_constrains_by_it(scripted_model: ScriptedModel) -> None:
    scripted_model.says({"n": 1}, times=2)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await asked(scripted_model.url, question(schema=schema), **CLAUDE)
    answer = await asked(
        scripted_model.url, question(schema=schema), constrains=frozenset({Constraint.SCHEMA}), **CLAUDE
    )
    assert answer.message.text == '{"n": 1}'
