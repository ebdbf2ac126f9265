"""Long arguments and results are read and validated while the event loop goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fumehood_server.calls import Executor
from fumehood_server.calls.large_values import LARGE_CHARS
from fumehood_server.calls.strict_json import MAX_CONTAINERS, JsonError, parse
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.taxonomy import Code

from tests.calls.fake import FakePools, FakeTools, FakeWorker, answered, code_of, ended, request, tool

NESTED = "[" + ",".join(["[[[]]]"] * 30_000) + "]"
OBJECT = '{"type": "object"}'


async def steps_during(executor: Executor, arguments_json: str) -> tuple[CallOutcome, int]:
    """How a call ends, and how many steps another task of the loop makes meanwhile."""
    steps, going = 0, True

    async def others() -> None:
        nonlocal steps
        while going:
            steps += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    outcome = await ended(executor.start(request(arguments_json)))
    going = False
    await other
    return outcome, steps


async def test_long_arguments_leave_the_loop_to_others(worker: FakeWorker, pools: FakePools) -> None:
    worker.answer = lambda _: answered("done")
    async with Executor(FakeTools((tool(schema=OBJECT),)), pools, max_concurrent_calls=4) as executor:
        _, short = await steps_during(executor, '{"items":[]}')
        outcome, long = await steps_during(executor, f'{{"items":{NESTED}}}')
    assert outcome.content[0].text == "done"
    assert long > short + 100


async def test_long_results_leave_the_loop_to_others(worker: FakeWorker, pools: FakePools) -> None:
    worker.answer = lambda _: answered(details_json=f'{{"items":{NESTED}}}')
    roomy = tool(output_schema=OBJECT)
    assert roomy.spec is not None
    roomy = replace(roomy, spec=replace(roomy.spec, output_bytes=len(NESTED) + 100))
    async with Executor(FakeTools((roomy,)), pools, max_concurrent_calls=4) as executor:
        outcome, steps = await steps_during(executor, '{"text":"hi"}')
    assert outcome.error is None
    assert steps > 100


async def test_long_arguments_that_do_not_fit_are_refused_as_short_ones_are(executor: Executor) -> None:
    for size in (1, LARGE_CHARS):
        outcome = await ended(executor.start(request(f'{{"text":[{" " * size}]}}')))
        assert code_of(outcome) is Code.TOOL_EXECUTION_FAILED


async def test_a_call_whose_arguments_take_too_long_meets_its_deadline(executor: Executor) -> None:
    outcome = await ended(executor.start(request(f'{{"text":{NESTED}}}', timeout_s=0.001)))
    assert code_of(outcome) is Code.TOOL_TIMEOUT


def test_more_containers_than_may_be_are_refused_before_they_are_read() -> None:
    assert len(parse("[" + ",".join(["[]"] * (MAX_CONTAINERS - 1)) + "]")) == MAX_CONTAINERS - 1
    with pytest.raises(JsonError, match="100,000 arrays and objects"):
        parse("[" + ",".join(["{}"] * MAX_CONTAINERS))  # which would be no JSON either
    quoted = '"' + '[{\\"' * MAX_CONTAINERS + '"'
    assert parse(quoted) == '[{"' * MAX_CONTAINERS
