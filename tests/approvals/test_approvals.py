"""A call that needs an approval runs once it is approved, exactly as it was approved, and once."""

from __future__ import annotations

import asyncio
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
from tests.journal.reading import Recorded, data
from tests.rpc.support import refused
from tests.sidecar import Sidecar

FAILED = grpc.StatusCode.FAILED_PRECONDITION


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
"""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        with place.sidecar(rules) as sidecar:
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


async def test_only_who_asks_for_a_calls_end_is_recorded_as_asking(
    client: Client, shared: tuple[Place, Sidecar]
) -> None:
    place, sidecar = shared
    recorded = Recorded(sidecar.folder)
    left = asyncio.create_task(client.call(place.call("left")))
    left_id = (await client.one()).call_id
    left.cancel()
    await recorded.call_until(left_id, "execute_cancelled")  # so that its approval is none that waits
    stopped = asyncio.create_task(client.call(place.call("stopped")))
    stopped_id = (await client.one()).call_id
    await client.tools.CancelCall(pb.CancelCallRequest(call_id=stopped_id, reason="enough"))
    assert (await stopped).error.message == "note was cancelled. Reason: enough"
    for call_id, requested in ((left_id, []), (stopped_id, [{"by": "unix:", "note": "enough"}])):
        events = await recorded.call_until(call_id, "execute_cancelled")
        assert data(events, "cancel_requested") == requested
        (end,) = data(events, "execute_cancelled")
        assert (end["reason"], end["by"]) == ("caller", "unix:")


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
    for timeout_ms in (200, 2_000, 20_000):  # until one was long enough for a busy machine to ask for the approval
        call_id = f"late-{timeout_ms}"
        request = shared_place.call("late", call_id)
        request.timeout.FromMilliseconds(timeout_ms)
        assert (await client.call(request)).error.code == "TOOL_TIMEOUT"
        if await client.list():
            break
    (approval,) = await client.list()
    await client.decide(approval)
    assert not (await client.call(shared_place.call("late", call_id))).is_error
    request.call_id = ""
    assert (await client.call(request)).error.code == "TOOL_TIMEOUT"
    assert await client.list() == []
    assert shared_place.lines() == ["late"]


async def test_expiry_ends_what_is_not_decided_and_what_is_not_used(place: Place) -> None:
    times = "[approvals]\ndecide_within_s = {}\nuse_within_s = {}\n"
    with place.sidecar(times.format(0.3, 3600)) as sidecar:
        path = sidecar.folder / "fumehood.toml"
        text = path.read_text()

        async def allow(decide_within_s: float, use_within_s: float) -> None:
            path.write_text(text.replace(times.format(0.3, 3600), times.format(decide_within_s, use_within_s)))
            await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())

        async with client_of(sidecar) as client:
            assert reason_in(await client.call(place.call("undecided"))) == "approval_expired"
            await allow(3600, 0.3)
            approval = await client.asked(place.call("unused", "unused", at_once=True))
            await client.decide(approval)
            await client.until(approval.approval_id, apb.APPROVAL_STATE_EXPIRED)
            assert await refused(client.decide(approval)) == (FAILED, "APPROVAL_CLOSED")
            assert reason_in(await client.call(place.call("unused", "unused"))) == "approval_expired"
            await allow(3600, 3600)
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
