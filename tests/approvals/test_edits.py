"""What an approver puts in place of the arguments: by the rules of the moment, and never the text for a secret."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fumehood_sandbox import Level
from fumehood_server.calls.approval_edits import edited
from fumehood_server.calls.call import Call
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.approve import ApprovalParts, Approved, approve, subject_of
from fumehood_server.calls.steps.prepare import arguments_of
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, ApprovalState, Asked
from fumehood_server.model.policy import Condition, Rule
from fumehood_server.model.standing import StandingApprovals
from fumehood_server.model.tool import Permission
from fumehood_server.policy import RuleSet
from fumehood_server.telemetry import get_logger
from fumehood_server.validation.documents import Accepted

from tests.approvals.test_states import START
from tests.calls.fake import FakeTools, request, tool

TOOL = replace(
    tool(level=Level.WRITE, permission=Permission.REQUIRE_APPROVAL), permission_set=False, plugin_secrets=("key",)
)
ASKS = Rule(name="asks", permission=Permission.REQUIRE_APPROVAL)
MINE = '{"text":"mine"}'
THEIRS = '{"text":"theirs"' + " " * 500_000 + "}"
"""Large enough to be validated by another process."""


async def accepted(checks: DocumentChecks, text: str) -> Accepted:
    verdict = await checks.check("k", arguments_of(TOOL, text, hashed=True))
    assert isinstance(verdict, Accepted)
    return verdict


class Edited:
    """Gives each call an approval whose arguments somebody has changed; `then` follows in the loop's next turn."""

    def __init__(self, sha256: str, then: RuleSet | None, rules: RuleSet) -> None:
        self.sha256, self.then, self.rules, self.asked = sha256, then, rules, 0

    async def obtain(self, asked: Asked) -> Approval:
        self.asked += 1
        if self.then is not None:
            asyncio.get_running_loop().call_soon(self.rules.take_up, self.then)
            self.then = None
        subject = replace(asked.subject, arguments_sha256=self.sha256)
        return replace(START, state=ApprovalState.APPROVED, asked=asked.subject, subject=subject, arguments_json=THEIRS)

    grants = 0

    async def decided(self, approval: Approval, grants: int) -> Approval:
        assert grants == self.grants
        return approval

    @property
    def standing(self) -> StandingApprovals:
        raise AssertionError("no rule lets an approval stand")

    async def withdraw(self, approval: Approval, reason: str) -> Approval:
        raise AssertionError(approval, reason)

    async def of_call(self, call_id: str) -> Approval | None:
        raise AssertionError(call_id)

    def used(self, approval: Approval) -> None:
        raise AssertionError(approval)


DENIES = Rule(name="no", permission=Permission.DENY, when=(Condition(pointer="/text", equals=("theirs",)),))
STRICTER = Rule(name="legal", permission=Permission.REQUIRE_APPROVAL, approvers=("lee",))


@pytest.mark.parametrize(("later", "asked"), [((ASKS, DENIES), 0), ((ASKS, STRICTER), 2), ((ASKS,), 1)])
async def test_rules_that_change_while_an_edit_is_validated_hold_for_it(later: tuple[Rule, ...], asked: int) -> None:
    rules = RuleSet([ASKS])
    async with DocumentChecks(get_logger()) as known, DocumentChecks(get_logger()) as checks:
        mine, theirs = await accepted(known, MINE), await accepted(known, THEIRS)
        approvals = Edited(theirs.canonical_sha256, RuleSet(later), rules)
        parts = ApprovalParts(approvals=approvals, policy=rules, tools=FakeTools((TOOL,)), checks=checks)
        call = Call(request(MINE))
        verdict = rules.decide(TOOL, "", MINE)

        async def run() -> Approved:
            return await approve(call, TOOL, mine, verdict, progress=Progress(), parts=parts)

        task = asyncio.create_task(run())
        call.runs_in(task)  # type: ignore[arg-type] # a step of it
        if asked:
            assert (await task).prepared.text == THEIRS
            assert approvals.asked == asked
        else:
            with pytest.raises(StepFailedError) as caught:
                await task
            assert caught.value.error.details["reason"] == "denied"


@pytest.mark.parametrize("text", ['{"text":"x [secret key]"}', '{"text":"\\u005bsecret key]"}'])
async def test_the_text_that_stands_for_a_secret_is_not_taken_for_arguments(text: str) -> None:
    rules = RuleSet([ASKS])
    async with DocumentChecks(get_logger()) as checks:
        asked = subject_of(request(MINE), TOOL, (await accepted(checks, MINE)).canonical_sha256, rules.version)
        approval = replace(START, asked=asked, subject=asked)
        with pytest.raises(ApprovalRefusedError, match=r"\[secret key\]"):
            await edited(approval, text, FakeTools((TOOL,)), rules, checks)
        assert (await edited(approval, '{"text":"[secret other]"}', FakeTools((TOOL,)), rules, checks)).subject != asked
