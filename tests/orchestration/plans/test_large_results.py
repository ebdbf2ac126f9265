"""A plan takes in large results of tools without holding up the event loop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.model.call import CallOutcome
from fumehood_server.orchestration.plans.long_json import is_long
from fumehood_server.orchestration.request import OutputContract
from fumehood_server.telemetry.loop_watchdog import NOTED_S
from fumehood_server.validation.budget import INLINE

from tests.loop_steps import longest_step_s
from tests.orchestration.plans.fake import FakeRun, carry_out, request_for, states, tool_step

LARGE = '{"list": [' + '{"a":"1234567"},' * 65_000 + "{}]}"
"""1 MB. The event loop frees what is made of it, in some milliseconds: longer for smaller objects."""


class LargeRun(FakeRun):
    """Its tool `large` has that result. Any other echoes nothing, and nothing reads its arguments."""

    async def call_tool(self, step: str, tool: str, arguments_json: str) -> CallOutcome:
        self.calls[step] = (tool, len(arguments_json))
        return CallOutcome(call_id=step, tool=tool, details_json=LARGE if tool == "large" else "{}")


def of(pointer: str) -> dict[str, Any]:
    return {"$from": "large", "pointer": pointer}


@pytest.mark.parametrize(
    ("steps", "output", "contract"),
    [
        ([], 1, None),
        ([tool_step("next", arguments={"all": of("")})], 1, None),
        ([{"name": "each", "kind": "map", "over": [of(""), 1], "do": {"kind": "tool", "tool": "echo"}}], 1, None),
        ([{"name": "check", "kind": "validate", "of": of(""), "schema": {"type": "object"}}], 1, None),
        ([], of("/list"), None),
        ([], {"all": of("/list")}, OutputContract(schema={"type": "object"})),
    ],
    ids=["taken in", "handed on", "gone over", "checked", "given as output", "given under a contract"],
)
async def test_a_result_of_1_mb_takes_the_event_loop_for_no_20_ms(
    steps: list[dict[str, Any]], output: Any, contract: OutputContract | None
) -> None:
    plan = [tool_step("large", "large"), *steps]

    async def carried_out() -> None:
        run = LargeRun(request_for(plan, output=output, contract=contract), tools_by_name={"large": str, "echo": str})
        result = await carry_out(run)
        assert set(states(result.plan_trace_json).values()) == {"done"}
        assert result.error is None

    assert await longest_step_s(carried_out) < NOTED_S


@pytest.mark.parametrize(
    ("value", "long"),
    [
        ("x" * INLINE.chars, False),
        ("x" * (INLINE.chars + 1), True),
        ({"x" * (INLINE.chars + 1): 1}, True),
        ([1] * (INLINE.values + 1), True),
        ([[1] * 900, {"a": [1] * 900}], False),
        ([[1] * 900, {"a": [1] * 900}, [1] * 900], True),
        ([10**4000] * 20, True),
        ([None, True, 1.5, "x", {}], False),
    ],
    ids=["text", "longer text", "a key", "many values", "some values", "more values", "digits", "little"],
)
def test_what_is_long_is_told_by_characters_and_values(value: Any, *, long: bool) -> None:
    assert is_long(value) is long


async def test_integers_of_a_large_result_stay_whole() -> None:
    number = 2**70 + 1
    plan = [tool_step("large", "large")]
    run = FakeRun(request_for(plan, output=of("/n")), tools_by_name={"large": lambda _: {"n": number, "pad": LARGE}})
    assert json.loads((await carry_out(run)).output_json) == number
