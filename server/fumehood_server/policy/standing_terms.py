"""Terms of a standing approval: checked as an approver gives them, and held against calls.

Conditions over arguments are those of `[[policy.rule]]`, as a rule that allows has them: what can't be told does not
fit.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import orjson

from fumehood_server.model.approvals import Approval
from fumehood_server.model.caller import Authentication
from fumehood_server.model.condition_checks import condition_problem
from fumehood_server.model.pattern_cost import building_states, pattern_states
from fumehood_server.model.policy import Condition
from fumehood_server.model.standing import MOST_CALLS, StandingTerms
from fumehood_server.policy.conditions import CompiledCondition
from fumehood_server.validation.pointer_values import MAX_TEXT_CHARS, PointerValues, is_plain, parse_arguments

MAX_CONDITIONS = 64
MAX_CONDITIONS_CHARS = 16_384
"""Of all of them as JSON: they are read for each call that they may be for."""
_US = 1_000_000
MAX_COST = 500_000
"""States of patterns times characters of text that are tried for one call: 20 ms of the event loop at worst."""
MAX_STATES = 5_000
"""Of all patterns together, to build: the event loop waits for it, a microsecond each at most."""
_KEPT = 256
"""Sets of conditions that are kept compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTerms:
    """What an approver asks for, as it came."""

    until_us: int | None = None
    """POSIX time. None: by `lasts_s`."""
    lasts_s: float | None = None
    """None, and no `until_us`: as long as may be."""
    calls: int = 0
    is_for_session: bool = False
    conditions: tuple[Condition, ...] = ()


class TermsError(Exception):
    """The terms can't be had. The message says which, and what can."""


async def checked(asked: AskedTerms, approval: Approval, *, now_us: int, max_s: float) -> StandingTerms:
    """The terms, where such an approval may have them. Its arguments are read in a thread, where there are conditions.

    Raises:
        TermsError: it may not.
    """
    until_us = _until(asked, now_us, max_s)
    if not 0 <= asked.calls <= MOST_CALLS:
        raise TermsError(f"calls is {asked.calls}, and must be 0 (any number) to {MOST_CALLS:,}")
    if asked.is_for_session and not approval.context.get("session_id"):
        raise TermsError("the call names no session (context.session_id) that this could be for")
    if approval.asker.authenticated_by is Authentication.NONE:
        raise TermsError("its caller has shown nothing of who it is, so that later calls could be anybody's")
    if approval.edited:
        raise TermsError("its arguments were changed by an approver: that is for this call alone")
    if asked.conditions:
        await asyncio.to_thread(_check_conditions, asked.conditions, approval.arguments_json)
    return StandingTerms(
        until_us=until_us, calls=asked.calls, is_for_session=asked.is_for_session, conditions=asked.conditions
    )


def _check_conditions(conditions: tuple[Condition, ...], arguments_json: str) -> None:
    if len(conditions) > MAX_CONDITIONS:
        raise TermsError(f"there are more than {MAX_CONDITIONS} conditions")
    for each in conditions:
        problem = condition_problem(each)
        if problem:
            raise TermsError(f'the condition at "{each.pointer[:128]}": {problem}')
    if len(_text(conditions)) > MAX_CONDITIONS_CHARS:
        raise TermsError(f"its conditions have more than {MAX_CONDITIONS_CHARS:,} characters together")
    if sum(building_states(each.pattern) for each in conditions if each.pattern) > MAX_STATES:
        raise TermsError(f"its patterns take more than {MAX_STATES:,} states together: repeat less in them")
    if cost(conditions, arguments_json) > MAX_COST:
        raise TermsError("its patterns take too long to match: repeat less in them")
    arguments = parse_arguments(arguments_json)
    compiled = zip(conditions, _compiled(_text(conditions)), strict=True)
    unfit = next((each for each, condition in compiled if not condition.holds(arguments, restricts=False)), None)
    if unfit is not None:
        raise TermsError(f'the condition at "{unfit.pointer[:128]}" does not hold for this call\'s own arguments')


def cost(conditions: tuple[Condition, ...], arguments_json: str) -> int:
    """What it takes at worst to try them, as `MAX_COST` counts it."""
    size = len(arguments_json)
    return sum(
        pattern_states(each.pattern) * (min(size, MAX_TEXT_CHARS) if is_plain(each.pointer) else size)
        for each in conditions
        if each.pattern
    )


def fit(conditions: tuple[Condition, ...], arguments: str | PointerValues) -> bool:
    """Whether arguments, or what the conditions' pointers find there, fit all of the conditions, which were checked."""
    if not conditions:
        return True
    found = parse_arguments(arguments) if isinstance(arguments, str) else arguments
    return all(each.holds(found, restricts=False) for each in _compiled(_text(conditions)))


def _until(asked: AskedTerms, now_us: int, max_s: float) -> int:
    until_us = now_us + round(max_s * _US)
    if asked.until_us is not None and asked.lasts_s is not None:
        raise TermsError("until and valid_for say the same thing twice: give one of them")
    if asked.until_us is not None:
        wanted_us = asked.until_us
    elif asked.lasts_s is not None:
        wanted_us = now_us + round(asked.lasts_s * _US)
    else:
        return until_us
    if wanted_us <= now_us:
        raise TermsError("it would have expired already")
    if wanted_us > until_us:
        raise TermsError(f"it may be good for {max_s:g} s at most ([approvals] standing_max_s)")
    return wanted_us


def _text(conditions: Iterable[Condition]) -> str:
    # Not the conditions themselves: in Python 1, 1.0 and true are equal.
    return orjson.dumps([asdict(each) for each in conditions]).decode()


@functools.lru_cache(maxsize=_KEPT)
def _compiled(text: str) -> tuple[CompiledCondition, ...]:
    return tuple(
        CompiledCondition(Condition(**{**each, "equals": tuple(each["equals"])})) for each in orjson.loads(text)
    )
