"""Bounds on what an engine may cost: bytes, calls, time, places, and turns of the event loop."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import MAX_ANSWER_BYTES, MAX_TOOL_USES, EngineError, InferenceAnswer
from fumehood_server.orchestration.engines.event_bounds import MAX_EVENT_LINES, EventBounds
from fumehood_server.orchestration.engines.model_engine import ModelEngine
from fumehood_server.orchestration.engines.transport import MAX_CHUNKS
from fumehood_server.secrets import SecretStore
from hypothesis import given
from hypothesis import strategies as st

from tests.orchestration.engines.asking import asked, config, failed, opened, question
from tests.orchestration.scripted import ScriptedModel, event, events

MIB = 1024 * 1024
TIMEOUTS_S = (0.3, 3.0, 30.0)
"""Tried until one was long enough for a busy machine to send its request."""
MALFORMED, UNAVAILABLE = Code.INFERENCE_MALFORMED_RESPONSE, Code.INFERENCE_MODEL_UNAVAILABLE


def piece(text: str) -> str:
    return event({"index": 0, "delta": {"content": text}, "finish_reason": None})


BYTES, LINES, CHUNKS = f"{MAX_ANSWER_BYTES} bytes", "lines or", f"{MAX_CHUNKS} chunks"


@pytest.mark.parametrize(
    ("chunk", "rounds", "status", "bound"),
    [
        (piece("x" * 900_000), 100, 200, BYTES),
        (piece("x" * 8000), -1, 200, BYTES),
        (": nothing\n\n" * 5000, -1, 200, BYTES),
        ("x" * MIB, 100, 200, LINES),
        ("x\n" * 1000, -1, 200, LINES),
        ("x\r" * 1000, -1, 200, LINES),
        (":\n\n", -1, 200, CHUNKS),
    ],
)
async def test_an_answer_without_bounds_is_ended_and_its_connection_closed(
    scripted_model: ScriptedModel, chunk: str, rounds: int, status: int, bound: str
) -> None:
    scripted_model.answers_raw(chunk, rounds=rounds, status=status)
    error = await failed(scripted_model.raw_url)
    assert (error.code, error.transient, bound in str(error)) == (MALFORMED, False, True)
    await scripted_model.abandoned(1)


async def test_an_answer_just_below_the_bound_is_whole(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(*(piece(each * 1_000_000) for each in "wxyz"), *events())
    assert len((await asked(scripted_model.raw_url)).message.text) == 4_000_000


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8), lines=st.integers(0, 80), after=st.integers(0, 3))
def test_an_event_is_measured_alike_however_it_is_cut(end: str, cuts: list[int], lines: int, after: int) -> None:
    newline = end[: len(end) // 2]
    stream = f"{f'data: x{newline}' * 5}{newline}" * 40 + f"x{newline}" * lines + newline + f"data: y{end}" * after
    data, bounds, at, within = stream.encode(), EventBounds(), 0, True
    for cut in itertools.cycle(cuts):
        within = bounds.take(data[at : at + cut]) and within
        at += cut
        if at >= len(data):
            break
    # Two characters for a line's end count twice.
    assert within == ((lines + 1) * len(newline) <= MAX_EVENT_LINES)


def _calls(count: int) -> dict[str, Any]:
    calls = [{"index": n, "id": f"c{n}", "function": {"name": "add", "arguments": "{}"}} for n in range(count)]
    return {"tool_calls": calls}


async def test_calls_are_counted_while_they_come(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(*events(_calls(MAX_TOOL_USES), finish="tool_calls"))
    scripted_model.answers_raw(*events(_calls(MAX_TOOL_USES + 1), finish=None, done=False), ending="hang")
    assert len((await asked(scripted_model.raw_url)).message.tool_uses) == MAX_TOOL_USES
    error = await failed(scripted_model.raw_url)
    assert (error.code, str(MAX_TOOL_USES) in str(error)) == (MALFORMED, True)
    await scripted_model.abandoned(1)


@pytest.mark.parametrize("silent", [True, False], ids=["no word", "half an answer"])
async def test_a_server_that_hangs_is_left_at_the_timeout(scripted_model: ScriptedModel, silent: bool) -> None:
    scripted_model.answers_raw(piece("a"), ending="hang", silent=silent, times=len(TIMEOUTS_S))
    for timeout_s in TIMEOUTS_S:
        error = await failed(scripted_model.raw_url, timeout_s=timeout_s)
        assert (error.code, error.transient, f"{timeout_s:g} s" in str(error)) == (UNAVAILABLE, True, True)
        if scripted_model.requests():
            break
    await scripted_model.abandoned(1)


async def test_a_server_that_trickles_is_left_at_the_timeout(scripted_model: ScriptedModel) -> None:
    scripted_model.answers_raw(piece("a"), rounds=-1, pause_ms=20, times=len(TIMEOUTS_S))
    for timeout_s in TIMEOUTS_S:
        assert (await failed(scripted_model.raw_url, timeout_s=timeout_s)).code is UNAVAILABLE
        if scripted_model.requests():
            break
    await scripted_model.abandoned(1)


@pytest.mark.parametrize("silent", [True, False], ids=["before a word", "within its answer"])
async def test_cancelling_closes_the_connection_and_leaves_the_engine_fit(
    scripted_model: ScriptedModel, silent: bool
) -> None:
    scripted_model.answers_raw(piece("a"), ending="hang", silent=silent)
    scripted_model.answers_raw(*events({"content": "fine"}))
    first = asyncio.Event()
    async with opened(scripted_model.raw_url, max_concurrent=1) as engine:
        asking = asyncio.create_task(engine.infer(question(), lambda _: first.set()))
        await (scripted_model.arrived(1) if silent else first.wait())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await scripted_model.abandoned(1)
        assert (await engine.infer(question(), lambda _: None)).message.text == "fine"


async def test_no_more_requests_are_under_way_than_places(scripted_model: ScriptedModel) -> None:
    for _ in range(2):
        scripted_model.answers_raw(piece("a"), ending="hang")
    scripted_model.answers_raw(*events({"content": "third"}))
    begun: list[str] = []
    started = asyncio.Event()

    def heard(text: str) -> None:
        begun.append(text)
        if len(begun) == 2:
            started.set()

    async with opened(scripted_model.raw_url, max_concurrent=2) as engine:
        asking = [asyncio.create_task(engine.infer(question(), heard)) for _ in range(3)]
        await started.wait()
        assert len(scripted_model.requests()) == 2
        asking[0].cancel()
        assert (await asking[2]).message.text == "third"
        asking[1].cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_waiting_for_a_place_counts_as_time_of_the_answer(scripted_model: ScriptedModel) -> None:
    async with ModelEngine(config(scripted_model.base_url, max_concurrent=1, timeout_s=0.2), SecretStore({})) as engine:
        await engine._places.acquire()
        with pytest.raises(EngineError) as error:
            await engine.infer(question(), lambda _: None)
    assert (error.value.code, scripted_model.requests()) == (UNAVAILABLE, [])


async def test_engines_get_their_turn_while_a_burst_of_small_pieces_is_read(scripted_model: ScriptedModel) -> None:
    pieces = 2000
    scripted_model.answers_raw("".join(events(*({"content": "x"} for _ in range(pieces)))))
    turns, heard = 0, 0
    most = 0

    def on_text(text: str) -> None:
        nonlocal heard, most
        heard += len(text)
        most = max(most, heard)

    async def counting() -> None:
        nonlocal turns, heard
        while True:
            turns, heard = turns + 1, 0
            await asyncio.sleep(0)

    async with ModelEngine(config(scripted_model.raw_url), SecretStore({})) as engine:
        other = asyncio.create_task(counting())
        answer: InferenceAnswer = await engine.infer(question(), on_text)
        other.cancel()
    assert len(answer.message.text) == pieces
    assert most <= 16, "pieces that were read in one turn of the loop"


async def test_two_hundred_at_once_all_get_their_own_answer(scripted_model: ScriptedModel) -> None:
    scripted_model.says("yes", times=None)
    async with opened(scripted_model.base_url, max_concurrent=16) as engine:
        found = await asyncio.gather(*(engine.infer(question(), lambda _: None) for _ in range(200)))
    assert [each.message.text for each in found] == ["yes"] * 200
