"""What was approved is void once it would run otherwise: by other rules, other code or wider grants."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import plugin_service_pb2 as ppb
from fumehood_server.model.approvals import Asked, Subject
from fumehood_server.model.bindings import Bindings
from fumehood_server.model.tool import Payloads
from fumehood_server.policy import ApprovalDesk, DeskSettings, RuleSet
from fumehood_server.policy.approval_documents import new_approval

from tests.approvals.support import DENY, WITHDRAW, Client, Place, client_of, reason_in
from tests.hooks.support import allow
from tests.hooks.support import client_of as hooks_of
from tests.rpc.support import metadata_of, reason_of
from tests.sidecar import Sidecar


async def test_a_policy_or_a_plugin_that_changes_voids_what_was_approved(place: Place) -> None:
    rule = '[[policy.rule]]\nname = "{}"\npermission = "{}"\n'

    async def change(client: Client, sidecar: Sidecar, old: str, new: str) -> None:
        path = sidecar.folder / "fumehood.toml"
        path.write_text(path.read_text().replace(old, new))
        await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())

    with place.sidecar(rule.format("first", "require_approval")) as sidecar:
        async with client_of(sidecar) as client:
            policy = await client.asked(place.call("policy", "policy", at_once=True))
            waits = asyncio.create_task(client.call(place.call("waits", "waits")))
            waiting = await client.pending("waits")
            await client.decide(policy)
            await change(client, sidecar, "first", "second")
            other = await client.asked(place.call("policy", "policy", at_once=True))
            (first,) = await client.list(policy.approval_id)
            assert (first.state, other.state) == (apb.APPROVAL_STATE_WITHDRAWN, apb.APPROVAL_STATE_PENDING)
            again = await client.pending("waits", but=waiting)  # at once, though nobody has tried to approve it
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.decide(waiting)
            assert reason_of(refused.value) == "APPROVAL_CLOSED"
            await client.decide(again)
            assert not (await waits).is_error

            code = await client.asked(place.call("code", "code", at_once=True))
            await client.decide(code)
            await change(client, sidecar, "require_approval", "deny")
            denied = await client.call(place.call("policy", "policy", at_once=True))
            assert (denied.error.code, reason_in(denied)) == ("TOOL_DENIED", "denied")
    module = place.code / "diary.py"
    module.write_text(module.read_text() + "# changed\n")
    (place.folder / "fumehood.lock").unlink()
    with place.sidecar(rule.format("second", "require_approval")) as sidecar:
        async with client_of(sidecar) as client:
            assert (await client.list(code.approval_id))[0].state == apb.APPROVAL_STATE_APPROVED
            await client.asked(place.call("code", "code", at_once=True))
            assert (await client.list(code.approval_id))[0].state == apb.APPROVAL_STATE_WITHDRAWN
    assert place.lines() == ["waits"]


async def test_a_void_approval_is_shown_so_and_can_be_denied_and_not_approved(place: Place) -> None:
    rule = '[[policy.rule]]\nname = "asked"\npermission = "require_approval"\n'
    with place.sidecar(rule) as sidecar:
        async with client_of(sidecar) as client:
            path = sidecar.folder / "fumehood.toml"
            calls = {name: place.call(name, name, at_once=True) for name in ("approved", "denied", "withdrawn")}
            asked = {name: await client.asked(call) for name, call in calls.items()}
            freed = asyncio.create_task(client.call(place.call("freed", "")))
            async for each in client.watch():
                if each.approval.call_id not in {"", *calls}:
                    break
            assert {each.void_reason for each in asked.values()} == {""}
            before = path.read_text()
            path.write_text(before.replace("require_approval", "allow"))
            await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())
            assert reason_in(await freed) == "approval_changed", "who waits is told to call again"
            why = "the rules have changed since it was asked for"
            assert [each.void_reason for each in await client.list()] == [why] * len(asked)
            async for each in client.watch():
                assert each.approval.void_reason
                break
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.decide(asked["approved"])
            assert reason_of(refused.value) == "APPROVAL_CHANGED"
            assert (metadata_of(refused.value)["state"], metadata_of(refused.value)["waits"]) == ("void", "false")
            assert (await client.decide(asked["denied"], DENY)).state == apb.APPROVAL_STATE_DENIED
            assert (await client.decide(asked["withdrawn"], WITHDRAW)).state == apb.APPROVAL_STATE_WITHDRAWN
            path.write_text(before)
            await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())
            (back,) = await client.list(asked["approved"].approval_id)
            assert back.void_reason == ""
            await client.decide(back)
            assert not (await client.call(calls["approved"])).is_error
    assert place.lines() == ["approved"]


def test_an_answer_to_a_question_is_not_void_while_its_call_runs() -> None:
    subject = Subject(
        tool="note",
        arguments_sha256="",
        definition="",
        plugin="",
        caller="",
        caller_authenticated_by="unix_socket",
        policy="rules of before",
        permission="allow",
    )
    settings = DeskSettings(decide_within_s=60, use_within_s=60, max_open=10, standing_max_s=60)
    desk = ApprovalDesk(None, None, lambda: settings, Bindings(_NoTools(), RuleSet()))  # type: ignore[arg-type]  # nothing is asked of them

    def reason(call_id: str) -> str:
        asked = Asked(
            call_id=call_id,
            run_id="",
            context={},
            plugin="diary",
            side_effects="write",
            subject=subject,
            arguments_json="{}",
            payloads=Payloads.FULL,
            requirements=(),
            connection="unix:",
        )
        return desk.void_reason(new_approval(asked, settings, now_us=0))

    assert (reason("call?question"), reason("call")) == ("", "note can't be called as things are now")


class _NoTools:
    def find(self, _name: str, /) -> None:
        return None


async def test_grants_that_change_void_what_was_approved_without_them(place: Place) -> None:
    with place.sidecar() as sidecar:
        async with client_of(sidecar) as client:
            approval = await client.asked(place.call("wider", "wider", at_once=True))
            await client.decide(approval)
            path = sidecar.folder / "fumehood.toml"
            more = place.folder / "more"
            more.mkdir()
            path.write_text(path.read_text().replace("write = [", f'write = ["{more}", '))
            await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())
            again = await client.asked(place.call("wider", "wider", at_once=True))
            assert (await client.list(approval.approval_id))[0].state == apb.APPROVAL_STATE_WITHDRAWN
            assert place.lines() == []
            await client.decide(again)
            assert not (await client.call(place.call("wider", "wider"))).is_error
    assert place.lines() == ["wider"]


async def test_rules_taken_up_while_a_hook_decides_are_those_that_hold_for_the_call(place: Place) -> None:
    rule = '[[policy.rule]]\nname = "{}"\npermission = "{}"\n'
    hook = '[[hook]]\nname = "slow"\ntools = ["note"]\nstages = ["before"]\ntimeout_s = 60\n'
    with place.sidecar(rule.format("first", "require_approval") + hook) as sidecar:
        async with client_of(sidecar) as client, hooks_of(sidecar) as hooks:
            serving = await hooks.connect("slow")
            path = sidecar.folder / "fumehood.toml"
            ends = []
            for call_id, old, new in (
                ("kept", "", ""),
                ("named", "first", "second"),
                ("freed", "require_approval", "allow"),
                ("denied", "allow", "deny"),
            ):
                call = asyncio.create_task(client.call(place.call("x", call_id, at_once=True)))
                question = await serving.question()
                path.write_text(path.read_text().replace(old, new))
                await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())
                await serving.answer(question, allow(question))
                ends.append((await call).error.code)
            asked = {each.call_id: [one.rule for one in each.requirements] for each in await client.list()}
    assert ends == ["TOOL_APPROVAL_REQUIRED", "TOOL_APPROVAL_REQUIRED", "", "TOOL_DENIED"]
    assert asked == {"kept": ["first"], "named": ["second"]}
    assert place.lines() == ["x"]
