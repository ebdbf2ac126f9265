"""Who may see, decide and withdraw which approvals, and how many of them one caller may have."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import plugin_service_pb2 as ppb

from tests.approvals.support import DENY, WITHDRAW, Place, client_of, reason_in
from tests.callers.support import token_of
from tests.rpc.support import refused

FAILED = grpc.StatusCode.FAILED_PRECONDITION
BOTH = 'listen = ["unix:s", "127.0.0.1:0"]'


async def test_who_has_no_name_sees_and_withdraws_its_own_and_approves_on_the_unix_socket_alone(place: Place) -> None:
    rules = """
[[policy.rule]]
name = "named"
permission = "require_approval"
approvers = ["ada", "bob"]
approvals = 2
when = [{ pointer = "/line", equals = "named" }]
"""
    with place.sidecar(rules, server=BOTH) as sidecar:
        async with client_of(sidecar) as client, client_of(sidecar, sidecar.targets[1]) as stranger:
            approval = await client.asked(place.call("who", "who", at_once=True))
            assert await stranger.list() == []
            for choice in (apb.APPROVAL_CHOICE_APPROVE, DENY, WITHDRAW):
                assert (await refused(stranger.decide(approval, choice)))[1] == "APPROVAL_NOT_FOUND"
            own = await stranger.asked(place.call("own", "own", at_once=True))
            assert [each.approval_id for each in await stranger.list()] == [own.approval_id]
            assert (await refused(stranger.decide(own)))[1] == "APPROVAL_NOT_ALLOWED"
            assert (await stranger.decide(own, WITHDRAW)).state == apb.APPROVAL_STATE_WITHDRAWN
            named = await client.asked(place.call("named", "named", at_once=True))
            assert (await refused(client.decide(named)))[1] == "APPROVAL_NOT_ALLOWED"
            assert [(each.rule, each.approvals) for each in named.requirements] == [("named", 2)]
            await client.decide(approval)
            assert not (await client.call(place.call("who", "who"))).is_error


async def test_one_caller_can_not_have_all_approvals(place: Place) -> None:
    with place.sidecar("[approvals]\nmax_open = 2\n", server=BOTH) as sidecar:
        async with client_of(sidecar) as client, client_of(sidecar, sidecar.targets[1]) as other:
            first = await client.asked(place.call("one", "one", at_once=True))
            refusal = await client.call(place.call("two", "two", at_once=True))
            assert (reason_in(refusal), refusal.error.retryable) == ("approval_too_many", True)
            await other.asked(place.call("three", "three", at_once=True))
            await client.decide(first, DENY)
            await client.asked(place.call("four", "four", at_once=True))


async def test_requests_at_once_on_many_connections_take_no_more_than_one_callers_share(place: Place) -> None:
    with place.sidecar("[approvals]\nmax_open = 6\n", server=f"{BOTH}\nallow_anonymous = true") as sidecar:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(sidecar, sidecar.targets[1])) for _ in range(4)]
            calls = [
                each.call(place.call("x", f"{number}-{again}", at_once=True))
                for number, each in enumerate(clients)
                for again in range(4)
            ]
            codes = [each.error.code for each in await asyncio.gather(*calls)]
            assert (codes.count("TOOL_APPROVAL_REQUIRED"), codes.count("TOOL_DENIED")) == (3, 13)
            operator = await stack.enter_async_context(client_of(sidecar))
            for each in await operator.list():
                await operator.decide(each, DENY)
            await clients[0].asked(place.call("x", "later", at_once=True))


async def test_a_caller_whose_rights_are_taken_while_it_waits_does_not_run(place: Place) -> None:
    rules = '[[caller]]\nname = "agent"\ntools = ["note"]\n'
    with place.sidecar(rules, server=BOTH) as sidecar:
        token = token_of(sidecar.folder, "agent")
        async with client_of(sidecar) as operator, client_of(sidecar, sidecar.targets[1], token) as agent:
            control = asyncio.create_task(agent.call(place.call("before", "before")))
            await operator.decide(await operator.one())
            assert not (await control).is_error
            waits = asyncio.create_task(agent.call(place.call("after", "after")))
            approval = await operator.one()
            path = sidecar.folder / "fumehood.toml"
            path.write_text(path.read_text().replace('tools = ["note"]', 'tools = ["other"]'))
            await operator.plugins.ReloadConfig(ppb.ReloadConfigRequest())
            await operator.decide(approval)
            assert (await waits).is_error
    assert place.lines() == ["before"]


async def test_nobody_withdraws_an_approval_by_taking_its_calls_id(place: Place) -> None:
    rules = "".join(f'[[caller]]\nname = "{name}"\ntools = ["*"]\n' for name in ("agent", "other"))
    with place.sidecar(rules, server=BOTH) as sidecar:
        tokens = [token_of(sidecar.folder, name) for name in ("agent", "other")]
        async with (
            client_of(sidecar) as operator,
            client_of(sidecar, sidecar.targets[1], tokens[0]) as agent,
            client_of(sidecar, sidecar.targets[1], tokens[1]) as other,
        ):
            approval = await agent.asked(place.call("mine", "mine", at_once=True))
            for text in ("mine", "theirs"):
                found = await refused(other.call(place.call(text, "mine", at_once=True)))
                assert found == (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
            await operator.decide(approval)
            assert not (await agent.call(place.call("mine", "mine"))).is_error
    assert place.lines() == ["mine"]


async def test_two_named_approvers_are_told_apart_and_the_asking_caller_is_none_of_them(place: Place) -> None:
    rules = """
[[policy.rule]]
name = "two"
permission = "require_approval"
approvers = ["ada", "bob", "agent"]
approvals = 2
[[caller]]
name = "agent"
tools = ["*"]
approve = ["*"]
"""
    rules += "".join(f'[[caller]]\nname = "{name}"\napprove = ["note"]\n' for name in ("ada", "bob", "eve"))
    rules += '[[caller]]\nname = "guest"\ntools = ["*"]\n'
    with place.sidecar(rules, server=BOTH) as sidecar:
        async with contextlib.AsyncExitStack() as stack:
            names = ("agent", "ada", "bob", "eve", "guest")
            tokens = {name: token_of(sidecar.folder, name) for name in names}
            agent, ada, bob, eve, guest = [
                await stack.enter_async_context(client_of(sidecar, sidecar.targets[1], tokens[name])) for name in names
            ]
            approval = await agent.asked(place.call("two", "two", at_once=True))
            assert (approval.caller.name, approval.caller.authenticated_by) == ("agent", "token")
            assert [len(await each.list()) for each in (agent, ada, guest)] == [1, 1, 0]
            for each in (agent, eve):
                assert (await refused(each.decide(approval)))[1] == "APPROVAL_NOT_ALLOWED"
            assert (await refused(guest.decide(approval)))[1] == "APPROVAL_NOT_FOUND"
            assert (await ada.decide(approval)).state == apb.APPROVAL_STATE_PENDING
            assert await refused(ada.decide(approval)) == (FAILED, "APPROVAL_CLOSED")
            decided = await bob.decide(approval)
            assert (decided.state, [each.by.name for each in decided.decisions]) == (
                apb.APPROVAL_STATE_APPROVED,
                ["ada", "bob"],
            )
            assert not (await agent.call(place.call("two", "two"))).is_error
    assert place.lines() == ["two"]
