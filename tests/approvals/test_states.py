"""Which change may follow on which: who counts, how many it takes, and what an edit does to earlier approvals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fumehood_server.model.approval_changes import MAX_DECISIONS, Decide, Expire, Use
from fumehood_server.model.approvals import (
    Approval,
    ApprovalRefusedError,
    ApprovalState,
    Choice,
    Decision,
    Subject,
    may_count,
)
from fumehood_server.model.policy import Requirement

SUBJECT = Subject(
    tool="pay",
    arguments_sha256="a" * 64,
    definition="sha256:d",
    plugin="sha256:p",
    caller="asker",
    caller_authenticated_by="token",
    policy="v1",
    permission="require_approval",
)
START = Approval(
    approval_id="approval-1",
    call_id="c1",
    run_id="r1",
    context={},
    plugin="bank",
    side_effects="write",
    state=ApprovalState.PENDING,
    subject=SUBJECT,
    arguments_json="{}",
    asked=SUBJECT,
    asked_json="{}",
    connection="ipv4:127.0.0.1:1",
    requirements=(Requirement(rule="r"),),
    requested_us=0,
    expires_us=100,
    use_within_us=50,
)


def of(*requirements: Requirement, **changes: Any) -> Approval:
    return replace(START, requirements=requirements or START.requirements, **changes)


def word(by: str, choice: Choice = Choice.APPROVE, **fields: Any) -> Decide:
    said: dict[str, Any] = {
        "authenticated_by": "token",
        "connection": f"ipv4:{by}",
        "reason": "",
        "digest": SUBJECT.digest,
        "at_us": 1,
    }
    return Decide("approval-1", Decision(choice=choice, by=by, **(said | fields)))


def after(approval: Approval, *changes: Any, now_us: int = 10) -> Approval:
    for each in changes:
        approval = each.applied(approval, now_us)
        assert Approval.from_json(approval.to_json()) == approval
    return approval


def refusal(approval: Approval | None, change: Any, now_us: int = 10) -> str:
    with pytest.raises(ApprovalRefusedError) as caught:
        change.applied(approval, now_us)
    return caught.value.reason


USE = Use("approval-1", "c1", SUBJECT.digest)
TWO = Requirement(rule="two", approvers=("ada", "bob", "cyd"), approvals=2)


def test_it_takes_as_many_different_approvers_as_the_rule_says() -> None:
    once = after(of(TWO), word("ada"))
    assert once.state is ApprovalState.PENDING
    assert refusal(once, word("ada")) == "decided"
    assert refusal(once, USE) == "pending"
    assert after(once, word("eve")).state is ApprovalState.PENDING
    assert after(once, word("bob")).state is ApprovalState.APPROVED
    assert after(once, word("bob", Choice.DENY)).state is ApprovalState.DENIED


def test_every_rule_is_to_be_satisfied() -> None:
    both = of(TWO, Requirement(rule="legal", approvers=("lee",)))
    assert after(both, word("ada"), word("bob")).state is ApprovalState.PENDING
    assert after(both, word("ada"), word("bob"), word("lee")).state is ApprovalState.APPROVED


def test_the_asking_caller_counts_where_the_rule_says_so_alone() -> None:
    assert after(of(), word("asker")).state is ApprovalState.PENDING
    assert not may_count(of(), "asker", "ipv4:elsewhere")
    assert may_count(of(), "ada", "ipv4:elsewhere")
    own = of(Requirement(rule="own", self_approval=True))
    assert may_count(own, "asker", "ipv4:elsewhere")
    assert after(own, word("asker")).state is ApprovalState.APPROVED


@pytest.mark.parametrize(
    ("by", "connection", "is_counted"),
    [("none", "ipv4:1", False), ("none", "ipv4:2", True), ("unix_socket", "unix:", True)],
)
def test_without_names_the_asking_connection_does_not_count(by: str, connection: str, *, is_counted: bool) -> None:
    asked = replace(SUBJECT, caller="", caller_authenticated_by=by)
    nameless = of(asked=asked, subject=asked, connection="unix:" if by == "unix_socket" else "ipv4:1")
    assert may_count(nameless, "", connection) is is_counted


@pytest.mark.parametrize(
    ("asks", "decides", "is_counted"),
    [
        (("agent", "token", "unix:"), ("", "unix:"), False),
        (("", "unix_socket", "unix:"), ("agent", "unix:"), False),
        (("", "none", "ipv4:1"), ("agent", "ipv4:1"), False),
        (("agent", "token", "ipv4:1"), ("", "unix:"), True),
        (("", "none", "ipv4:1"), ("ada", "ipv4:2"), True),
        (("agent", "token", "unix:"), ("ada", "unix:"), True),
    ],
)
def test_leaving_a_name_out_on_the_same_connection_makes_nobody_another(
    asks: tuple[str, str, str], decides: tuple[str, str], *, is_counted: bool
) -> None:
    caller, by, connection = asks
    asked = replace(SUBJECT, caller=caller, caller_authenticated_by=by)
    approval = of(asked=asked, subject=asked, connection=connection)
    name, decider_connection = decides
    assert may_count(approval, name, decider_connection) is is_counted
    given = after(approval, word(name, connection=decider_connection, digest=asked.digest))
    assert (given.state is ApprovalState.APPROVED) is is_counted
    allowed = replace(approval, requirements=(Requirement(rule="own", self_approval=True),))
    assert may_count(allowed, name, decider_connection)


def test_an_edit_puts_earlier_approvals_aside() -> None:
    edited = replace(SUBJECT, arguments_sha256="b" * 64)
    edit = word("bob", edited=edited, edited_json='{"x":1}')
    once = after(of(TWO), word("ada"), edit)
    assert (once.state, once.arguments_json, once.asked_json) == (ApprovalState.PENDING, '{"x":1}', "{}")
    assert refusal(once, word("cyd")) == "changed"
    twice = after(once, word("ada", digest=edited.digest))
    assert (twice.state, twice.digest) == (ApprovalState.APPROVED, edited.digest)
    assert refusal(twice, USE) == "changed"
    assert after(twice, Use("approval-1", "c1", edited.digest)).state is ApprovalState.USED


def test_it_expires_before_and_after_it_was_given() -> None:
    assert refusal(of(), word("ada"), now_us=100) == "expired"
    assert refusal(of(), Expire("approval-1"), now_us=99) == "not_due"
    given = after(of(), word("ada"), now_us=90)
    assert given.expires_us == 140
    assert refusal(given, USE, now_us=140) == "expired"
    assert after(given, USE, now_us=139).state is ApprovalState.USED
    assert after(given, Expire("approval-1"), now_us=140).state is ApprovalState.EXPIRED


def test_what_is_closed_stays_as_it_is() -> None:
    given = after(of(), word("ada"))
    closed = [
        after(given, USE),
        after(of(), word("ada", Choice.DENY)),
        after(given, word("ada", Choice.WITHDRAW)),
        after(of(), Expire("approval-1"), now_us=100),
    ]
    assert [each.state.value for each in closed] == ["used", "denied", "withdrawn", "expired"]
    assert {(each.arguments_json, each.asked_json) for each in closed} == {("", "")}
    for each in closed:
        for change in (USE, word("eve"), word("eve", Choice.DENY), word("eve", Choice.WITHDRAW)):
            assert refusal(each, change) == each.state.value
    assert refusal(None, USE) == "not_found"


def test_one_that_was_given_is_for_one_call_of_exactly_that() -> None:
    given = after(of(), word("ada"))
    assert refusal(given, Use("approval-1", "c2", SUBJECT.digest)) == "changed"
    for name in Subject.__slots__:
        other = replace(SUBJECT, **{name: "other"})
        assert refusal(given, Use("approval-1", "c1", other.digest)) == "changed", name
    assert refusal(given, word("eve", Choice.DENY)) == "decided"


def test_edits_again_and_again_neither_pile_up_nor_go_on_for_ever() -> None:
    approval = of(Requirement(rule="r", approvals=2))
    text = '"' + "x" * 10_000 + '"'
    for number in range(MAX_DECISIONS):
        edited = replace(SUBJECT, arguments_sha256=f"{number:064}")
        change = word("ann", digest=approval.digest, edited=edited, edited_json=text)
        approval = after(approval, change)
        assert len(approval.to_json()) < 5 * len(text) + 1_000 * (number + 1)
    assert approval.state is ApprovalState.PENDING
    with pytest.raises(ApprovalRefusedError, match="64 times"):
        after(approval, word("ann", digest=approval.digest, edited=SUBJECT, edited_json=text))
    assert after(approval, word("ann", Choice.DENY, digest=approval.digest)).state is ApprovalState.DENIED
