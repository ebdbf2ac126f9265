"""Which change of a standing approval may follow on which, and what of a call must be as it was."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from fumehood_server.model.approval_changes import Decide
from fumehood_server.model.approvals import ApprovalRefusedError, ApprovalState
from fumehood_server.model.policy import Condition, Requirement
from fumehood_server.model.standing import Revocation, Standing, StandingState, StandingTerms
from fumehood_server.model.standing_changes import ConfirmStanding, Grant, Revoke, UseStanding
from fumehood_server.policy.standing_desk import granted_by
from fumehood_server.policy.standing_terms import MAX_CONDITIONS, MAX_COST, AskedTerms, checked, cost, fit

from tests.approvals.test_states import START, SUBJECT, TWO, of, refusal, word

TERMS = StandingTerms(until_us=100, calls=2)
CONDITION = Condition(pointer="/amount", max=5.0)


def standing(**changes: Any) -> Standing:
    decision = replace(word("ada").decision, standing_id="standing-1")
    return replace(granted_by(decision, START, TERMS), **changes)


def use(**changes: Any) -> UseStanding:
    return replace(UseStanding("standing-1", SUBJECT, "", ("r",)), **changes)


REVOKE = Revoke("standing-1", Revocation(by="ada", authenticated_by="token", connection="ipv4:1", reason="", at_us=20))


def after(found: Standing | None, *changes: Any, now_us: int = 10) -> Standing:
    for each in changes:
        found = each.applied(found, now_us)
        assert Standing.from_json(found.to_json()) == found
    assert found is not None
    return found


def refused(found: Standing | None, change: Any, now_us: int = 10) -> str:
    with pytest.raises(ApprovalRefusedError) as caught:
        change.applied(found, now_us)
    return caught.value.reason


def test_it_is_used_as_often_as_was_said_and_within_its_time() -> None:
    given = after(None, Grant(standing()))
    twice = after(given, use(), use())
    assert (twice.used, twice.state(10), twice.is_open) == (2, StandingState.USED_UP, False)
    assert refused(twice, use()) == "used_up"
    assert after(given, use(), now_us=99).used == 1
    assert refused(given, use(), now_us=100) == "expired"
    assert after(standing(calls=0), *[use()] * 10).is_open
    assert refused(None, use()) == "not_found"


def test_one_that_is_revoked_is_neither_used_nor_is_a_call_that_waits_sent() -> None:
    used = after(standing(), use())
    assert after(used, ConfirmStanding("standing-1")) is used
    revoked = after(used, REVOKE)
    assert (revoked.state(10), revoked.used) == (StandingState.REVOKED, 1)
    for change in (use(), ConfirmStanding("standing-1"), REVOKE):
        assert refused(revoked, change) == "revoked"
    assert after(after(used, use()), REVOKE, now_us=200).revoked is not None, "of one that is used up calls may wait"
    assert after(used, ConfirmStanding("standing-1"), now_us=200) is used, "they began in time"


def test_what_a_call_is_must_be_what_it_was_given_for() -> None:
    given = standing()
    for name in type(SUBJECT).__slots__:
        assert refused(given, use(subject=replace(SUBJECT, **{name: "other"}))) == "changed", name
    by_conditions = standing(conditions=(CONDITION,), subject=replace(SUBJECT, arguments_sha256=""))
    for name in type(SUBJECT).__slots__:
        other = use(subject=replace(SUBJECT, **{name: "other"}))
        if name == "arguments_sha256":
            assert after(by_conditions, other).used == 1
        else:
            assert refused(by_conditions, other) == "changed", name
    assert refused(standing(session_id="s1"), use(session_id="s2")) == "changed"
    assert after(standing(session_id="s1"), use(session_id="s1")).used == 1
    assert refused(given, use(rules=("r", "legal"))) == "changed", "whose approvers have not been asked"
    assert after(standing(rules=("r", "legal")), use()).used == 1


def test_one_approver_must_be_enough_to_have_it_stand() -> None:
    def stand(by: str) -> Decide:
        return word(by, standing_id="standing-1")

    assert stand("ada").applied(of(), 10).state is ApprovalState.APPROVED
    assert refusal(of(TWO), stand("ada")) == "not_standing"
    once = word("ada").applied(of(TWO), 10)
    assert refusal(once, stand("bob")) == "not_standing", "the first has approved one call"
    assert word("bob").applied(once, 10).state is ApprovalState.APPROVED
    both = of(Requirement(rule="r"), Requirement(rule="legal", approvers=("lee",)))
    assert refusal(both, stand("ada")) == "not_standing"
    assert stand("lee").applied(both, 10).state is ApprovalState.APPROVED


def test_conditions_hold_for_what_can_be_told_and_cost_what_their_patterns_may() -> None:
    assert fit((), '{"x":1}')
    assert fit((CONDITION,), '{"amount":5}')
    for text in ('{"amount":6}', '{"amount":"5"}', "{}", ""):
        assert not fit((CONDITION,), text), text
    one, true = Condition(pointer="/x", equals=(1,)), Condition(pointer="/x", equals=(True,))
    assert [fit((each,), '{"x":1}') for each in (one, true)] == [True, False]
    assert [fit((each,), '{"x":true}') for each in (one, true)] == [False, True]
    long = '{"x":"' + "y" * 1_000_000 + '"}'
    assert cost((Condition(pointer="/x", pattern="^/srv/"),), long) < MAX_COST
    assert cost((Condition(pointer="/*", pattern="^/srv/"),), long) > MAX_COST
    assert cost((CONDITION,), long) == 0


async def test_others_have_their_turn_while_conditions_are_tried_on_large_arguments() -> None:
    large = {"amount": 1, "rows": [[number] for number in range(150_000)]}
    approval = replace(START, arguments_json=json.dumps(large))
    turns, ended = 0, asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not ended.is_set():
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    asked = AskedTerms(lasts_s=60, conditions=(CONDITION,) * MAX_CONDITIONS)
    terms = await checked(asked, approval, now_us=10, max_s=3600)
    ended.set()
    await beside
    assert (terms.conditions, turns > 10) == (asked.conditions, True)
