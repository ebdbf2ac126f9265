"""Engines work on a loop of their own, and are asked from another."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fumehood_server.orchestration.engines.engine import EngineError
from fumehood_server.orchestration.engines.opening import open_engines
from fumehood_server.secrets import SecretStore

from tests.orchestration.engines.asking import KEY, config, opened, question
from tests.orchestration.scripted import ScriptedModel, event, events


def piece(text: str) -> str:
    return event({"index": 0, "delta": {"content": text}})


class _Store(SecretStore):
    """Tells on which thread it is read."""

    def __init__(self) -> None:
        super().__init__({})
        self.threads: list[int] = []

    async def read_secret(self, name: str) -> bytes:
        assert name == "key"
        self.threads.append(threading.get_ident())
        return KEY.encode()


async def test_an_engine_works_on_a_thread_of_its_own_and_tells_of_text_on_the_callers(
    scripted_model: ScriptedModel,
) -> None:
    scripted_model.says("yes")
    store, heard = _Store(), list[int]()
    async with open_engines([config(scripted_model.base_url, secret="key")], store) as engines:  # noqa: S106 - a name
        await engines["local"].infer(question(), lambda _: heard.append(threading.get_ident()))
    assert heard == [threading.get_ident()]
    assert store.threads
    assert threading.get_ident() not in store.threads


async def test_the_thread_ends_with_what_opened_it_and_so_does_what_is_asked(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(piece("a"), ending="hang")
    first = asyncio.Event()
    async with opened(scripted_model.raw_url) as engine:
        asking = asyncio.create_task(engine.infer(question(), lambda _: first.set()))
        await first.wait()
        assert "engines" in {each.name for each in threading.enumerate()}
    with pytest.raises(EngineError, match="is closed"):
        await asking
    with pytest.raises(EngineError, match="is closed"):
        await engine.infer(question(), lambda _: None)
    await scripted_model.abandoned(1)
    for each in threading.enumerate():
        if each.name == "engines":
            each.join(60)
    assert "engines" not in {each.name for each in threading.enumerate()}


async def test_an_engine_that_cannot_be_opened_says_so_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fumehood_server.orchestration.engines.model_engine.make_model", _failing)
    with pytest.raises(ZeroDivisionError):
        async with opened("http://127.0.0.1:1/v1"):
            pass
    for each in threading.enumerate():
        if each.name == "engines":
            each.join(60)
    assert "engines" not in {each.name for each in threading.enumerate()}


def _failing(*_: object) -> None:
    raise ZeroDivisionError


async def test_what_raises_in_on_text_is_raised_and_closes_the_connection(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(piece("a"), ending="hang")

    def raising(_: str) -> None:
        raise ZeroDivisionError

    async with opened(scripted_model.raw_url) as engine:
        with pytest.raises(ZeroDivisionError):
            await engine.infer(question(), raising)
        await scripted_model.abandoned(1)


async def test_no_text_comes_after_a_request_was_cancelled(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(piece("a"), rounds=-1, pause_ms=1)
    scripted_model.answers_raw(*events({"content": "b"}))
    heard: list[str] = []
    first = asyncio.Event()

    def hear(text: str) -> None:
        heard.append(text)
        first.set()

    async with opened(scripted_model.raw_url) as engine:
        asking = asyncio.create_task(engine.infer(question(), hear))
        await first.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        before = list(heard)
        await engine.infer(question(), lambda _: None)
        assert heard == before
