"""Schemas of questions: one is checked at a time, and whoever asks very many waits behind others with each of them."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fumehood_server.calls import question_schemas
from fumehood_server.calls.question_schemas import QuestionSchemas
from fumehood_server.model.schema import SchemaError

BOUND_S = 60.0


async def test_one_is_checked_at_a_time_and_plugins_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, order = threading.Semaphore(1), [True], list[str]()

    def check(text: str, **_bounds: object) -> str:
        most[0] &= at_once.acquire(blocking=False)
        order.append(text)
        at_once.release()
        return text

    monkeypatch.setattr(question_schemas, "check_schema", check)
    schemas = QuestionSchemas()
    flood = [schemas.check("flood", plugin="flood") for _ in range(50)]
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*flood, schemas.check("other", plugin="other"))
    assert most == [True]
    assert order.index("other") <= 1
    assert len(order) == 51


async def test_what_is_wrong_is_told_and_the_next_is_checked() -> None:
    schemas = QuestionSchemas()
    async with asyncio.timeout(BOUND_S):
        for text in ("{", '{"type": "object", "properties": {"p": {"pattern": "\\\\pL{5000}"}}}'):
            with pytest.raises(SchemaError):
                await schemas.check(text, plugin="one")
        await schemas.check('{"type": "object"}', plugin="one")
