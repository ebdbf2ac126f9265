"""What an inference asks is hashed as ever, once for all that ask the same, and in no long step of the loop."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable

import orjson
import pytest
from fumehood_server.orchestration import input_hash
from fumehood_server.orchestration.engines.engine import InferenceRequest
from fumehood_server.orchestration.input_hash import PIECE_CHARS, InputHasher
from fumehood_server.orchestration.messages import Message, Role, ToolUse, messages_to_json
from fumehood_server.telemetry.loop_watchdog import NOTED_S
from hypothesis import given
from hypothesis import strategies as st

from tests.loop_steps import held_up_s

LONG = Message(role=Role.USER, text="\x01" * 1_000_000)
"""6 MB of JSON."""

texts = st.text() | st.sampled_from(["\x01", '"', "é"]).map(lambda each: each * (2 * PIECE_CHARS + 1))
messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    text=texts,
    tool_uses=st.lists(st.builds(ToolUse, id=st.text(), tool=st.text(), arguments_json=texts), max_size=2).map(tuple),
    tool_use_id=st.text(),
    tool=st.text(),
    is_error=st.booleans(),
)


def at_once(request: InferenceRequest) -> str:
    """The hash, as recorded runs have it."""
    schema = None if request.schema is None else orjson.dumps(request.schema, option=orjson.OPT_SORT_KEYS).decode()
    asked = {"messages": messages_to_json(request.messages), "schema": schema, "grammar": request.grammar}
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


@given(
    st.lists(messages, max_size=3),
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=5), st.sampled_from(["", "root"])), max_size=8),
    st.none() | st.dictionaries(st.text(), st.integers(0, 9) | st.text()),
)
async def test_the_hash_is_that_of_the_whole_document_whatever_was_hashed_before(
    said: list[Message], asked: list[tuple[list[int], str]], schema: dict[str, int | str] | None
) -> None:
    hasher = InputHasher()
    for numbers, grammar in asked:
        chosen = tuple(said[number] for number in numbers if number < len(said))
        request = InferenceRequest(messages=chosen, schema=schema, grammar=grammar)
        assert await hasher.hash_of(request) == at_once(request)


async def test_what_replicas_and_later_turns_ask_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Message] = []

    def counted(given: Iterable[Message]) -> object:
        read.extend(given := list(given))
        return messages_to_json(given)

    monkeypatch.setattr(input_hash, "messages_to_json", counted)
    hasher = InputHasher()
    told = [(LONG, Message(role=Role.USER, text="As JSON.")) for _ in range(16)]
    hashes = await asyncio.gather(*(hasher.hash_of(InferenceRequest(messages=each)) for each in told))
    plain = InferenceRequest(messages=(LONG,))
    await asyncio.gather(*(hasher.hash_of(plain) for _ in range(16)))
    turns = told[-1]
    for number in range(20):
        turns = (*turns, Message(role=Role.ASSISTANT, text=str(number)), Message(role=Role.USER, text="More."))
        await hasher.hash_of(InferenceRequest(messages=turns))
    assert set(hashes) == {at_once(InferenceRequest(messages=told[0]))}
    assert sum(each is LONG for each in read) == 1
    assert len(read) == 1 + 16 + 40


async def test_1_mb_of_control_characters_keeps_the_loop_from_its_turns_for_no_20_ms() -> None:
    requests = [InferenceRequest(messages=(LONG,)), InferenceRequest(messages=(LONG, LONG))]

    async def hashed() -> None:
        hasher = InputHasher()
        await asyncio.gather(*map(hasher.hash_of, requests))

    assert await held_up_s(hashed) < NOTED_S
