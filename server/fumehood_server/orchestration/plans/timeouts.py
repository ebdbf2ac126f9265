"""The longest that a step may take: its own bound, or that of the plan's policy where it is less."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import failed
from fumehood_server.orchestration.plans.plan import PlanStep
from fumehood_server.orchestration.plans.policy import tool_of


@asynccontextmanager
async def step_timeout(step: PlanStep, policy_s: float | None) -> AsyncIterator[None]:
    """Cancel what is within when the step's time is over.

    Raises:
        RunFailedError: it is over. TOOL_TIMEOUT of a step that calls a tool, else INFERENCE_MODEL_UNAVAILABLE.
    """
    limit_s = min((each for each in (step.timeout_s, policy_s) if each is not None), default=None)
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        details = {"step": step.name, "timeout_s": limit_s}
        if tool_of(step) is not None:
            # Not retryable: the call that was cancelled may have had effects. Its own record says what became of it.
            raise failed(Code.TOOL_TIMEOUT, f"the step took longer than {limit_s:g} s", details=details) from None
        raise failed(
            Code.INFERENCE_MODEL_UNAVAILABLE,
            f"the model took longer than the step's {limit_s:g} s",
            retryable=True,
            details=details,
        ) from None
