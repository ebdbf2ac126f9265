"""The scripted model does what tests tell it: in order, by text, for ever, and sees who goes away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.orchestration.scripted import ScriptedModel, events


async def asked(model: ScriptedModel, text: str, *, url: str = "", **more: Any) -> httpx2.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        return await client.post(f"{url or model.base_url}/chat/completions", json=body)


async def said(model: ScriptedModel, text: str) -> Any:
    return (await asked(model, text)).json()["choices"][0]["message"]["content"]


async def test_answers_are_used_up_in_their_order_and_then_there_are_none(scripted_model: ScriptedModel) -> None:
    scripted_model.says("one")
    scripted_model.says("two", when="second")
    scripted_model.says("three", times=2)
    texts = [await said(scripted_model, each) for each in ("first", "other", "second", "third")]
    assert texts == ["one", "three", "two", "three"]
    assert (await asked(scripted_model, "fifth")).status_code == 503
    assert [each["messages"][0]["content"] for each in scripted_model.requests()][-1] == "fifth"


async def test_calls_and_errors_are_as_they_were_told(scripted_model: ScriptedModel) -> None:
    scripted_model.calls(("add", {"a": 1}, "id-1"), ("add", "{broken"), text="Let me see")
    scripted_model.fails(429, "slow down", code="rate", retry_after=7)
    message = (await asked(scripted_model, "x")).json()["choices"][0]["message"]
    calls = [each["function"] for each in message["tool_calls"]]
    assert calls == [{"name": "add", "arguments": '{"a": 1}'}, {"name": "add", "arguments": "{broken"}]
    assert (message["tool_calls"][0]["id"], message["content"]) == ("id-1", "Let me see")
    refused = await asked(scripted_model, "x")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert refused.json()["error"]["code"] == "rate"


async def test_an_answer_without_bounds_ends_with_its_client(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw("data: x\n\n", rounds=-1)
    scripted_model.answers_raw(*events({"content": "a"}))
    asking = asyncio.create_task(asked(scripted_model, "x", url=scripted_model.raw_url))
    await scripted_model.arrived(1)
    assert scripted_model.open() == 1
    asking.cancel()
    await scripted_model.abandoned(1)
    assert scripted_model.open() == 0
    whole = await asked(scripted_model, "x", url=scripted_model.raw_url)
    assert json.loads(whole.text.splitlines()[0].removeprefix("data: "))["choices"][0]["delta"] == {"content": "a"}
    with pytest.raises(asyncio.CancelledError):
        await asking
