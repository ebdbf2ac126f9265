"""A call that needs an approval runs once it is approved, exactly as it was approved, and once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import plugin_service_pb2 as ppb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import verify

from tests.approvals.support import BOUND_S, DENY, WITHDRAW, Client, Place, client_of, reason_in
from tests.callers.support import token_of
from tests.rpc.support import refused
from tests.sidecar import Sidecar

FAILED = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Place(folder)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Place, Sidecar]]:
    rules = """
[[policy.rule]]
name = "small"
permission = "allow"
tools = ["note"]
when = [{ pointer = "/amount", max = -1 }]
[[policy.rule]]
name = "never"
permission = "deny"
when = [{ pointer = "/line", equals = "never" }]
[[policy.rule]]
name = "named"
permission = "require_approval"
approvers = ["ada", "bob"]
approvals = 2
when = [{ pointer = "/line", equals = "named" }]
"""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        with place.sidecar(rules, server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
            yield place, sidecar


@pytest.fixture
def shared_place(shared: tuple[Place, Sidecar]) -> Place:
    place, _ = shared
    (place.diary / "diary").unlink(missing_ok=True)
    return place


@pytest_asyncio.fixture
async def client(shared: tuple[Place, Sidecar]) -> AsyncIterator[Client]:
    async with client_of(shared[1]) as client:
        yield client
        for each in await client.list():
            await client.decide(each, WITHDRAW)


async def test_a_call_waits_until_it_is_approved(client: Client, shared_place: Place) -> None:
    call = asyncio.create_task(client.call(shared_place.call("waits", "waits")))
    approval = await client.one()
    assert (approval.call_id, approval.tool, approval.arguments_json) == (
        "waits",
        "note",
        shared_place.arguments("waits"),
    )
    assert not call.done()
    assert shared_place.lines() == []
    decided = await client.decide(approval, reason="as agreed")
    assert decided.state == apb.APPROVAL_STATE_APPROVED
    result = await call
    assert (result.is_error, result.details_json, shared_place.lines()) == (False, "1", ["waits"])
    (used,) = await client.list(approval.approval_id)
    assert (used.state, used.arguments_json) == (apb.APPROVAL_STATE_USED, "")
    assert [(each.reason, each.by.authenticated_by, each.digest) for each in used.decisions] == [
        ("as agreed", "unix_socket", approval.digest)
    ]


async def test_a_caller_that_does_not_wait_comes_again_with_the_same_id(client: Client, shared_place: Place) -> None:
    request = shared_place.call("later", "later", at_once=True)
    approval = await client.asked(request)
    assert (await client.asked(request)).approval_id == approval.approval_id
    await client.decide(approval)
    result = await client.call(request)
    assert (result.is_error, shared_place.lines()) == (False, ["later"])
    assert (await client.call(request)).content == result.content
    assert shared_place.lines() == ["later"]


async def test_a_denied_call_never_runs_and_says_why(client: Client, shared_place: Place) -> None:
    call = asyncio.create_task(client.call(shared_place.call("denied", "denied")))
    await client.decide(await client.one(), DENY, reason="wrong account")
    result = await call
    assert (result.error.code, reason_in(result)) == ("TOOL_DENIED", "approval_denied")
    assert "wrong account" in result.error.message
    assert reason_in(await client.call(shared_place.call("denied", "denied"))) == "approval_denied"
    assert shared_place.lines() == []


async def test_what_is_decided_stays_decided(client: Client, shared_place: Place) -> None:
    approval = await client.asked(shared_place.call("twice", "twice", at_once=True))
    await client.decide(approval)
    assert await refused(client.decide(approval)) == (FAILED, "APPROVAL_CLOSED")
    assert await refused(client.decide(approval, DENY)) == (FAILED, "APPROVAL_CLOSED")
    await client.call(shared_place.call("twice", "twice"))
    for choice in (DENY, WITHDRAW):
        assert await refused(client.decide(approval, choice)) == (FAILED, "APPROVAL_CLOSED")
    assert shared_place.lines() == ["twice"]


async def test_an_approval_is_for_the_arguments_that_were_looked_at(client: Client, shared_place: Place) -> None:
    approval = await client.asked(shared_place.call("one", "changed", at_once=True))
    assert await refused(client.decide(approval, digest="0" * 64)) == (FAILED, "APPROVAL_CHANGED")
    await client.decide(approval)
    other = await client.asked(shared_place.call("two", "changed", at_once=True))
    assert other.approval_id != approval.approval_id
    (first,) = await client.list(approval.approval_id)
    assert (first.state, shared_place.lines()) == (apb.APPROVAL_STATE_WITHDRAWN, [])


async def test_an_approver_may_change_the_arguments_and_both_are_kept(client: Client, shared_place: Place) -> None:
    approval = await client.asked(shared_place.call("mine", "edit", at_once=True))
    for wrong in ('{"line": 1', '{"line": "x"}', shared_place.arguments("never")):
        assert (await refused(client.decide(approval, arguments_json=wrong)))[1] == "REQUEST_INVALID"
    decided = await client.decide(approval, arguments_json=shared_place.arguments("theirs"))
    assert decided.digest != approval.digest
    assert (json.loads(decided.arguments_json)["line"], json.loads(decided.asked_arguments_json)["line"]) == (
        "theirs",
        "mine",
    )
    result = await client.call(shared_place.call("mine", "edit"))
    assert (result.is_error, shared_place.lines()) == (False, ["theirs"])
    assert (await client.call(shared_place.call("mine", "edit"))).content == result.content
    assert shared_place.lines() == ["theirs"]


async def test_an_approval_can_be_taken_back_before_and_after_it_is_given(client: Client, shared_place: Place) -> None:
    call = asyncio.create_task(client.call(shared_place.call("back", "pending")))
    await client.decide(await client.one(), WITHDRAW, reason="not now")
    assert reason_in(await call) == "approval_withdrawn"
    approval = await client.asked(shared_place.call("back", "given", at_once=True))
    await client.decide(approval)
    await client.decide(approval, WITHDRAW)
    assert reason_in(await client.call(shared_place.call("back", "given"))) == "approval_withdrawn"
    assert shared_place.lines() == []


async def test_who_has_no_name_sees_and_withdraws_its_own_and_approves_on_the_unix_socket_alone(
    client: Client, shared_place: Place, shared: tuple[Place, Sidecar]
) -> None:
    approval = await client.asked(shared_place.call("who", "who", at_once=True))
    async with client_of(shared[1], shared[1].targets[1]) as stranger:
        assert await stranger.list() == []
        for choice in (apb.APPROVAL_CHOICE_APPROVE, DENY, WITHDRAW):
            assert (await refused(stranger.decide(approval, choice)))[1] == "APPROVAL_NOT_FOUND"
        own = await stranger.asked(shared_place.call("own", "own", at_once=True))
        assert [each.approval_id for each in await stranger.list()] == [own.approval_id]
        assert (await refused(stranger.decide(own)))[1] == "APPROVAL_NOT_ALLOWED"
        assert (await stranger.decide(own, WITHDRAW)).state == apb.APPROVAL_STATE_WITHDRAWN
    named = await client.asked(shared_place.call("named", "named", at_once=True))
    assert (await refused(client.decide(named)))[1] == "APPROVAL_NOT_ALLOWED"
    assert [(each.rule, each.approvals) for each in named.requirements] == [("named", 2)]
    await client.decide(approval)
    assert not (await client.call(shared_place.call("who", "who"))).is_error


async def test_rules_over_arguments_decide_what_needs_an_approval(client: Client, shared_place: Place) -> None:
    assert not (await client.call(shared_place.call("free", amount=-1))).is_error
    denied = await client.call(shared_place.call("never", amount=-1))
    assert (denied.error.code, json.loads(denied.error.details_json)["rules"]) == ("TOOL_DENIED", ["never"])
    assert shared_place.lines() == ["free"]


async def test_a_call_that_is_cancelled_takes_its_approval_along(client: Client, shared_place: Place) -> None:
    call = asyncio.create_task(client.call(shared_place.call("gone", "cancelled")))
    approval = await client.one()
    await client.tools.CancelCall(pb.CancelCallRequest(call_id="cancelled"))
    assert (await call).error.code == "CANCELLED_SIGNAL"
    (found,) = await client.list(approval.approval_id)
    assert found.state == apb.APPROVAL_STATE_WITHDRAWN


async def test_a_caller_whose_deadline_passes_may_come_again_and_one_without_an_id_can_not(
    client: Client, shared_place: Place
) -> None:
    request = shared_place.call("late", "late")
    request.timeout.FromMilliseconds(200)
    assert (await client.call(request)).error.code == "TOOL_TIMEOUT"
    approval = await client.one()
    await client.decide(approval)
    assert not (await client.call(shared_place.call("late", "late"))).is_error
    request.call_id = ""
    assert (await client.call(request)).error.code == "TOOL_TIMEOUT"
    assert await client.list() == []
    assert shared_place.lines() == ["late"]


async def test_expiry_ends_what_is_not_decided_and_what_is_not_used(place: Place) -> None:
    with place.sidecar("[approvals]\ndecide_within_s = 0.3\nuse_within_s = 0.3\n") as sidecar:
        async with client_of(sidecar) as client:
            assert reason_in(await client.call(place.call("undecided"))) == "approval_expired"
            approval = await client.asked(place.call("unused", "unused", at_once=True))
            await client.decide(approval)
            await client.until(approval.approval_id, apb.APPROVAL_STATE_EXPIRED)
            assert await refused(client.decide(approval)) == (FAILED, "APPROVAL_CLOSED")
            assert reason_in(await client.call(place.call("unused", "unused"))) == "approval_expired"
            control = asyncio.create_task(client.call(place.call("used")))
            await client.decide(await client.one())
            assert not (await control).is_error
    assert place.lines() == ["used"]


async def test_approvals_survive_kills_before_and_after_the_decision(place: Place) -> None:
    async def killed(sidecar: Sidecar) -> None:
        sidecar.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(sidecar.process.wait, BOUND_S)

    with place.sidecar() as sidecar:
        async with client_of(sidecar) as client:
            call = asyncio.create_task(client.call(place.call("kept", "kept")))
            approval = await client.one()
            await killed(sidecar)
            with pytest.raises(grpc.aio.AioRpcError):
                await call
    with place.sidecar() as sidecar:
        async with client_of(sidecar) as client:
            await client.decide(approval)
            await killed(sidecar)
    with place.sidecar() as sidecar:
        async with client_of(sidecar) as client:
            assert (await client.one()).state == apb.APPROVAL_STATE_APPROVED
            assert not (await client.call(place.call("kept", "kept"))).is_error
            assert await client.list() == []
            again = await client.asked(place.call("kept", "other", at_once=True))
            assert again.approval_id != approval.approval_id
    assert place.lines() == ["kept"]
    reader = SqliteReader(place.folder / ".fumehood" / "journal.db")
    events = [decode(each.body) for each in reader.events(EventFilter(subjects=("kept",)), limit=100)]
    assert [each["type"] for each in events] == [
        "approval_requested",
        "approval_decided",
        "execute_start",
        "approval_used",
        "execute_attempt",
        "execute_end",
    ]
    assert [each["number"] for each in events] == [0, 0, 1, 2, 3, 4]
    assert {each["data"]["approval_id"] for each in events if each["type"].startswith("approval")} == {
        approval.approval_id
    }
    found = verify(reader, public_keys(place.folder / ".fumehood"))
    assert found.fault is None
    reader.close()


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
            await client.decide(policy)
            await change(client, sidecar, "first", "second")
            other = await client.asked(place.call("policy", "policy", at_once=True))
            (first,) = await client.list(policy.approval_id)
            assert (first.state, other.state) == (apb.APPROVAL_STATE_WITHDRAWN, apb.APPROVAL_STATE_PENDING)
            (waiting,) = [each for each in await client.list() if each.call_id == "waits"]
            await client.decide(waiting)
            again = await client.pending("waits", but=waiting)
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


async def test_a_shutdown_does_not_wait_for_approvals_and_leaves_them(place: Place) -> None:
    with place.sidecar(server="drain_s = 600") as sidecar:
        async with client_of(sidecar) as client:
            call = asyncio.create_task(client.call(place.call("stays", "stays")))
            approval = await client.one()
            sidecar.signal()
            result = await call
            assert (result.error.code, result.error.retryable) == ("CANCELLED_SIGNAL", True)
            assert await asyncio.to_thread(sidecar.wait, BOUND_S) == 0
    with place.sidecar() as sidecar:
        async with client_of(sidecar) as client:
            await client.decide(approval)
            assert not (await client.call(place.call("stays", "stays"))).is_error
    assert place.lines() == ["stays"]


async def test_one_caller_can_not_have_all_approvals(place: Place) -> None:
    both = 'listen = ["unix:s", "127.0.0.1:0"]'
    with place.sidecar("[approvals]\nmax_open = 2\n", server=both) as sidecar:
        async with client_of(sidecar) as client, client_of(sidecar, sidecar.targets[1]) as other:
            first = await client.asked(place.call("one", "one", at_once=True))
            refusal = await client.call(place.call("two", "two", at_once=True))
            assert (reason_in(refusal), refusal.error.retryable) == ("approval_too_many", True)
            await other.asked(place.call("three", "three", at_once=True))
            await client.decide(first, DENY)
            await client.asked(place.call("four", "four", at_once=True))


async def test_requests_at_once_on_many_connections_take_no_more_than_one_callers_share(place: Place) -> None:
    with place.sidecar(
        "[approvals]\nmax_open = 6\n", server='listen = ["unix:s", "127.0.0.1:0"]\nallow_anonymous = true'
    ) as sidecar:
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


async def test_a_caller_whose_rights_are_taken_while_it_waits_does_not_run(place: Place) -> None:
    rules = '[[caller]]\nname = "agent"\ntools = ["note"]\n'
    with place.sidecar(rules, server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
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
    with place.sidecar(rules, server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
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
    with place.sidecar(rules, server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
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
