"""The step of a call that says what it takes of quotas. Whether they have that left is asked as its start is recorded.

So there is nothing between the question and the answer: the journal's transaction counts, and refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from fumehood_server.calls.call import Call
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.quotas import Charge, Counted, Exceeded, Quotas, UncountableError, shown
from fumehood_server.model.taxonomy import Code

_INLINE_CHARS = 16 * 1024
"""Of arguments that are read on the event loop: a quarter of a millisecond."""
_ZERO = Decimal(0)


async def charges_of(call: Call, tool: RegisteredTool, progress: Progress, quotas: Quotas) -> Sequence[Charge]:
    """What the call takes of each quota that counts it.

    Raises:
        StepFailedError: that can't be told, so that it may not run.
    """
    request, text = call.request, progress.arguments_json
    found = quotas.counting(tool, request.identity.name)
    if not found:
        return ()
    try:
        if len(text) <= _INLINE_CHARS or all(each.counts is not Counted.SUM for each in found):
            return quotas.charges(found, request, text)
        return await asyncio.to_thread(quotas.charges, found, request, text)
    except UncountableError as exc:
        raise StepFailedError(uncountable(tool.name, exc)) from exc


def at_the_end(charges: Sequence[Charge], outcome: CallOutcome) -> tuple[Charge, ...]:
    """What a call's end takes more: the bytes of its result."""
    if not charges:
        return ()
    if all(each.counts is not Counted.BYTES for each in charges):
        return tuple(replace(each, amount=_ZERO) for each in charges if each.counts is Counted.IN_FLIGHT)
    size = len(outcome.details_json.encode(errors="surrogatepass"))
    size += sum(block.size_bytes for block in outcome.content)
    sizes = {Counted.BYTES: Decimal(size), Counted.IN_FLIGHT: _ZERO}
    return tuple(replace(each, amount=sizes[each.counts]) for each in charges if each.counts in sizes)


def exceeded_error(what: str, exceeded: Exceeded) -> CallError:
    """The answer to what a quota has not enough left for. `what` was not done: such as "pay was not run"."""
    charge = exceeded.charge
    left = max(charge.limit - exceeded.used, _ZERO)
    details: dict[str, Any] = {
        "reason": "quota_exceeded",
        "quota": charge.quota,
        "counts": charge.counts.value,
        "per": dict(charge.key),
        "limit": shown(charge.limit),
        "left": shown(left),
        "wanted": shown(charge.amount),
    }
    never = charge.amount > charge.limit
    if charge.window_us:
        details["window_s"] = charge.window_us // 1_000_000
    if exceeded.free_us is not None:
        details["retry_after_s"] = round(max(exceeded.free_us - exceeded.now_us, 0) / 1e6, 3)
        details["free_at_us"] = exceeded.free_us
    if never:
        when = "It never has as much. Ask for less, or go on without it."
    elif charge.counts is Counted.IN_FLIGHT:
        when = "Call again once one of them has ended."
    elif exceeded.free_us is None:
        when = "Call again later."
    else:
        when = f"Call again in {details['retry_after_s']:g} s."
    return CallError(
        code=Code.TOOL_QUOTA_EXCEEDED,
        message=(
            f"{what}: quota {charge.quota} lets {shown(charge.limit)} {_UNITS[charge.counts]}"
            f"{_in_window(charge)}, {shown(left)} of which {'is' if left == 1 else 'are'} left. {when}"
        ),
        retryable=not never,
        details=details,
    )


def uncountable(tool: str, problem: UncountableError) -> CallError:
    """The answer to a call whose argument can't be counted."""
    quota = problem.quota
    return CallError(
        code=Code.TOOL_QUOTA_EXCEEDED,
        message=(
            f"{tool} was not run: quota {quota.name} sums {quota.pointer}, and {problem.problem}. Give a number that "
            "is not negative."
        ),
        details={
            "reason": "not_countable",
            "quota": quota.name,
            "counts": quota.counts.value,
            "pointer": quota.pointer,
            "limit": shown(quota.limit),
        },
    )


_UNITS = {
    Counted.IN_FLIGHT: "calls at a time",
    Counted.CALLS: "calls",
    Counted.BYTES: "bytes",
    Counted.SUM: "in all",
    Counted.INFERENCES: "inferences",
    Counted.TOKENS: "tokens",
    Counted.COST: "of cost",
}


def _in_window(charge: Charge) -> str:
    return f" in {charge.window_us // 1_000_000:,} s" if charge.window_us else ""


__all__ = ["at_the_end", "charges_of", "exceeded_error", "uncountable"]
