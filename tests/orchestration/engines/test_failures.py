"""Each way in which an engine fails, as the error that a run gets of it."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import EngineError, FinishReason

from tests.orchestration.engines.asking import KEY, asked, failed
from tests.orchestration.scripted import ScriptedModel, event, events

ERROR, UNAVAILABLE = Code.INFERENCE_ENGINE_ERROR, Code.INFERENCE_MODEL_UNAVAILABLE
CONTEXT, MALFORMED = Code.INFERENCE_CONTEXT_EXCEEDED, Code.INFERENCE_MALFORMED_RESPONSE


@pytest.mark.parametrize(
    ("status", "code", "transient"),
    [
        (400, ERROR, False),
        (401, UNAVAILABLE, False),
        (403, UNAVAILABLE, False),
        (404, UNAVAILABLE, False),
        (422, ERROR, False),
        (429, UNAVAILABLE, True),
        (500, ERROR, True),
        (501, ERROR, True),
        (502, UNAVAILABLE, True),
        (503, UNAVAILABLE, True),
        (504, UNAVAILABLE, True),
        (529, UNAVAILABLE, True),
    ],
)
async def test_each_http_status_has_its_code_and_says_whether_to_ask_again(
    scripted_model: ScriptedModel, status: int, code: Code, transient: bool
) -> None:
    scripted_model.fails(status, "so it is")
    error = await failed(scripted_model.base_url)
    assert (error.code, error.transient, f"HTTP {status}" in str(error)) == (code, transient, True)
    assert len(scripted_model.requests()) == 1  # the SDK's own retries are off


@pytest.mark.parametrize(
    ("headers", "after_s", "transient"),
    [
        ({"retry-after": "7"}, 7.0, True),
        ({"retry-after-ms": "250"}, 0.25, True),
        ({"retry-after": "soon"}, None, True),
        ({"retry-after": "-1"}, None, True),
        ({"retry-after": "86400"}, None, False),
        ({}, None, True),
    ],
)
async def test_retry_after_is_heard_where_it_is_a_time_that_a_run_may_wait(
    scripted_model: ScriptedModel, headers: dict[str, str], after_s: float | None, transient: bool
) -> None:
    scripted_model.answers_raw("{}", status=429, headers=headers)
    error = await failed(scripted_model.raw_url)
    assert (error.retry_after_s, error.transient) == (after_s, transient)


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "This model's maximum context length is 8192 tokens.", None),
        (400, "too much", "context_length_exceeded"),
        (400, "the request exceeds the available context size (4096 tokens), try increasing it", None),
        (500, "Input exceeds the context window", None),
        (413, "prompt is too long: 210000 tokens > 200000 maximum", None),
    ],
)
async def test_a_context_that_is_exceeded_is_recognised_in_the_words_of_many(
    scripted_model: ScriptedModel, status: int, message: str, code: str | None
) -> None:
    scripted_model.fails(status, message, code=code)
    error = await failed(scripted_model.base_url)
    assert (error.code, error.transient) == (CONTEXT, False)


async def test_a_context_that_is_exceeded_within_a_stream_is_recognised_too(scripted_model: ScriptedModel) -> None:
    body = {"error": {"message": "too much", "code": "context_length_exceeded"}}
    scripted_model.answers_raw(*events({"content": "a"}, finish=None, done=False), f"data: {json.dumps(body)}\n\n")
    assert (await failed(scripted_model.raw_url)).code is CONTEXT


async def test_money_that_has_run_out_is_not_asked_for_again(scripted_model: ScriptedModel) -> None:
    scripted_model.fails(429, "You exceeded your current quota", code="insufficient_quota")
    error = await failed(scripted_model.base_url)
    assert (error.code, error.transient) == (UNAVAILABLE, False)


async def test_what_llama_cpp_cannot_parse_of_its_own_model_is_asked_for_again(scripted_model: ScriptedModel) -> None:
    scripted_model.fails(500, "The model produced output that does not match the expected peg-native format")
    error = await failed(scripted_model.base_url)
    assert (error.code, error.transient) == (MALFORMED, True)


@pytest.mark.parametrize(
    ("chunks", "ending"),
    [
        (tuple(events({"content": "It is"}, finish=None, done=False)), "drop"),
        (tuple(events({"content": "It is"}, finish=None, done=False)), "end"),
        (tuple(events({"content": "It is"}, finish=None)), "end"),
        ((), "drop"),
    ],
)
async def test_a_stream_that_ends_before_its_answer_is_no_answer(
    scripted_model: ScriptedModel, chunks: tuple[str, ...], ending: str
) -> None:
    scripted_model.answers_raw(*chunks, ending=ending)
    error = await failed(scripted_model.raw_url)
    assert (error.code in {UNAVAILABLE, MALFORMED}, error.transient) == (True, True)


async def test_a_stream_that_is_dropped_half_way_is_no_answer(scripted_model: ScriptedModel) -> None:
    scripted_model.says("It is a fume hood, of course.", piece=3, truncateAfterChunks=3)
    assert (await failed(scripted_model.base_url)).transient


@pytest.mark.parametrize(
    "chunks",
    [
        ("data: {not JSON\n\n",),
        ("data: " + "[" * 5_000 + "\n\n",),
        ("<html>",),
        ("data: null\n\n", "data: []\n\n"),
        ("data: 7\n\n",),
        ("\0\xff" * 1000,),
        (),
        ('data: {"error": {"message": "it broke"}}\n\n',),
        (event({"index": 0, "delta": {}, "finish_reason": "error"}), "data: [DONE]\n\n"),
    ],
    ids=["no JSON", "deep", "HTML", "no objects", "a number", "bytes", "empty", "an error", "a strange reason"],
)
async def test_an_answer_that_is_none_fails_by_code_whatever_it_is(
    scripted_model: ScriptedModel, chunks: tuple[str, ...]
) -> None:
    scripted_model.answers_raw(*chunks)
    scripted_model.answers_raw(*events({"content": "fine"}))
    error = await failed(scripted_model.raw_url)
    assert (error.code in {MALFORMED, ERROR}, error.transient) == (True, True)
    assert (await asked(scripted_model.raw_url)).message.text == "fine"


async def test_an_engine_that_nobody_listens_for_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = await failed(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
    assert (error.code, error.transient) == (UNAVAILABLE, True)


async def test_a_redirect_is_not_followed(scripted_model: ScriptedModel) -> None:
    scripted_model.says("from elsewhere")
    elsewhere = f"{scripted_model.base_url}/chat/completions"
    scripted_model.answers_raw(status=307, headers={"location": elsewhere})
    error = await failed(scripted_model.raw_url)
    assert (error.transient, "redirect" in str(error), len(scripted_model.requests())) == (False, True, 1)


async def test_a_compressed_answer_is_not_read(scripted_model: ScriptedModel) -> None:
    body = gzip.compress("".join(events({"content": "x"})).encode()).decode("latin-1")
    scripted_model.answers_raw(body, headers={"content-encoding": "gzip"})
    error = await failed(scripted_model.raw_url)
    assert (error.code, "compressed" in str(error)) == (MALFORMED, True)


async def test_little_of_what_the_provider_said_is_told_and_never_the_key(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(KEY)
    secret: dict[str, Any] = {"keys": {"key": file}, "secret": "key"}
    scripted_model.fails(400, f"bad schema\n\x1b[1m for {KEY}: " + "x" * 5000)
    scripted_model.fails(401, f"Incorrect API key provided: {KEY}")
    rejected = await failed(scripted_model.base_url, **secret)
    assert 'HTTP 400: "bad schema' in str(rejected)
    assert "[secret key]" in str(rejected)
    denied = await failed(scripted_model.base_url, **secret)
    for error in (rejected, denied):
        told = str(error)
        assert (KEY in told, len(told) < 300, told.isprintable()) == (False, True, True)
        assert _chain(error) == [error]
    assert "Incorrect" not in str(denied)


def _chain(error: BaseException) -> list[BaseException]:
    """What a traceback of it shows."""
    shown = error.__cause__ if error.__suppress_context__ else error.__cause__ or error.__context__
    return [error, *([] if shown is None else _chain(shown))]


async def test_an_answer_after_failures_is_whole(scripted_model: ScriptedModel) -> None:
    scripted_model.fails(503)
    scripted_model.says("back")
    assert isinstance(await failed(scripted_model.base_url), EngineError)
    answer = await asked(scripted_model.base_url)
    assert (answer.message.text, answer.finish_reason) == ("back", FinishReason.STOP)
