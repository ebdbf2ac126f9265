"""Carries out a `map`: its action for each item, a few at once, in one list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.lifecycle import MODE_RULES
from fumehood_server.orchestration.plans.actions import Actions, Occasion
from fumehood_server.orchestration.plans.outputs import Outputs
from fumehood_server.orchestration.plans.rendering import Renderer, mismatch
from fumehood_server.orchestration.plans.steps import MapStep
from fumehood_server.orchestration.plans.trace import StepTrace
from fumehood_server.orchestration.request import Mode

MAX_ITEMS = 256
RECOVERABLE = MODE_RULES[Mode.PLAN].recovers
"""Failures after which a plan may go on without the step or the item."""


async def carry_out_map(
    step: MapStep,
    *,
    actions: Actions,
    outputs: Outputs,
    slots: asyncio.Semaphore,
    trace: StepTrace,
    begins: Callable[[CallError | None], None],
) -> list[Any]:
    """What its items came to, in their order. Each holds one of the `slots` while it is under way.

    After a failure no further item begins; those that are under way end, since what a tool has begun it may not undo.

    Raises:
        RunFailedError: the failure of the first item that failed, or its list is none (ORCHESTRATION_STEP_MISMATCH).
    """
    items = await _items(step, outputs)
    trace.items = len(items)
    results: list[Any] = [None] * len(items)
    failures: dict[int, Exception] = {}

    async def carry_out(index: int) -> None:
        async with slots:
            if failures:
                return
            occasion = Occasion(step=step.name, item=index + 1, value=items[index], retries=step.retries, begins=begins)
            try:
                results[index] = await outputs.count(await actions.carry_out(step.do, occasion))
            except RunFailedError as exc:
                trace.failed_items += 1
                trace.error = exc.error
                if step.on_item_failure == "fail" or exc.category not in RECOVERABLE:
                    failures[index] = exc
            except Exception as exc:  # noqa: BLE001 - raised once all have ended
                failures[index] = exc

    async with asyncio.TaskGroup() as group:
        for index in range(len(items)):
            group.create_task(carry_out(index))
    raise_first(failures[index] for index in sorted(failures))
    return results


def raise_first(failures: Iterable[Exception]) -> None:
    """Raise what ended steps or items: what is no failure of theirs before all others.

    Raises:
        Exception: the first.
    """
    for each in sorted(failures, key=lambda each: isinstance(each, RunFailedError)):
        raise each


async def _items(step: MapStep, outputs: Outputs) -> list[Any]:
    renderer = Renderer(outputs)
    over = await renderer.made(renderer.whole, step.over)
    if not isinstance(over, list):
        raise mismatch("there is no list to go over", step.over)
    if len(over) > MAX_ITEMS:
        raise mismatch(f"the list has {len(over)} items, and at most {MAX_ITEMS} are gone over", step.over)
    return over
