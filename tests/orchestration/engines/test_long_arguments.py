"""Long arguments of tools, which stand in a conversation, keep the event loop from its turns at no inference."""

from __future__ import annotations

import pytest
from fumehood_server.orchestration.engines.conversion import ArgumentReader
from fumehood_server.orchestration.messages import Message, Role, ToolUse
from fumehood_server.telemetry.loop_watchdog import NOTED_S

from tests.loop_steps import held_up_s

TOO_MUCH = '{"list":[' + f'{{"a":[{"1.5," * 11}2.5]}},' * 18_000 + "{}]}"

LONG = '{"list":[' + f'{{"a":["{"x" * 200}",{"1.5," * 11}2.5]}},' * 3_000 + "{}]}"


def said(*arguments: str) -> list[Message]:
    uses = (ToolUse(id=f"call-{n}", tool="echo", arguments_json=each) for n, each in enumerate(arguments))
    return [Message(role=Role.ASSISTANT, tool_uses=tuple(uses))]


async def test_arguments_of_1_mb_are_read_within_no_20_ms_of_the_loop() -> None:
    assert await held_up_s(lambda: ArgumentReader().unreadable(said(LONG, TOO_MUCH))) < NOTED_S


@pytest.mark.parametrize("times", [1, 2], ids=["read", "remembered"])
async def test_what_is_no_object_is_told_of_long_and_short_arguments(times: int) -> None:
    unreadable = {TOO_MUCH, "[]", '{"a":', LONG[:-1], f"[{LONG}]", '"' + "x" * 100_000 + '"', "[" * 100_000}
    reader = ArgumentReader()
    for _ in range(times):
        assert await reader.unreadable(said(*unreadable, "{}", LONG)) == unreadable
    assert await reader.unreadable(said("[]", "{}", '{"a":')) == {"[]", '{"a":'}
