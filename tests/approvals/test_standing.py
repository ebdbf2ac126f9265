"""A standing approval lets later calls begin that are like the one it was given with, and no others."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import tool_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.approvals.support import WITHDRAW, Client, Place, client_of
from tests.rpc.support import reason_of, refused
from tests.sidecar import Sidecar

RULES = """
[approvals]
standing_max_s = 3600
[[policy.rule]]
name = "stands"
permission = "require_approval"
tools = ["note"]
standing = true
[[policy.rule]]
name = "each"
permission = "require_approval"
when = [{ pointer = "/line", equals = "each" }]
[[policy.rule]]
name = "legal"
permission = "require_approval"
approvers = ["ada"]
standing = true
when = [{ pointer = "/line", equals = "legal" }]
"""
ACTIVE, USED_UP, EXPIRED, REVOKED = (
    apb.STANDING_APPROVAL_STATE_ACTIVE,
    apb.STANDING_APPROVAL_STATE_USED_UP,
    apb.STANDING_APPROVAL_STATE_EXPIRED,
    apb.STANDING_APPROVAL_STATE_REVOKED,
)
IDS = itertools.count()
REQUIRED = "TOOL_APPROVAL_REQUIRED"
LINE = apb.ArgumentCondition(pointer="/line", pattern="^log: ")
LONG = apb.ArgumentCondition(pointer="/line", one_of_json=['"terms"', f'"{"x" * 16_000}"'])
SMALL = apb.ArgumentCondition(pointer="/amount", max=100)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Place, Sidecar]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        listen = 'listen = ["unix:s", "127.0.0.1:0"]\nallow_anonymous = true'
        with place.sidecar(RULES, server=listen) as sidecar:
            yield place, sidecar


@pytest.fixture
def place(shared: tuple[Place, Sidecar]) -> Place:
    (shared[0].diary / "diary").unlink(missing_ok=True)
    return shared[0]


@pytest_asyncio.fixture
async def client(shared: tuple[Place, Sidecar]) -> AsyncIterator[Client]:
    async with client_of(shared[1]) as client:
        yield client
        for approval in await client.list():
            await client.decide(approval, WITHDRAW)
        for each in await client.standing():
            await client.revoke(each.standing_id)


class Caller:
    """Makes calls of `note`, each under an id of its own, that are answered at once."""

    def __init__(self, client: Client, place: Place) -> None:
        self.client, self.place = client, place

    def request(self, line: str, amount: int = 0, session: str = "") -> pb.CallToolRequest:
        request = self.place.call(line, f"call-{next(IDS)}", at_once=True, amount=amount)
        request.context.session_id = session
        return request

    async def code(self, line: str, **fields: Any) -> str:
        """How a call ends: empty where it ran."""
        return str((await self.client.call(self.request(line, **fields))).error.code)

    async def stand(self, line: str, *, amount: int = 0, in_session: str = "", **terms: Any) -> str:
        """Have a call approved, and calls like it; it runs by its own approval."""
        request = self.request(line, amount, in_session)
        standing_id = await self.client.stand(await self.client.asked(request), **terms)
        assert not (await self.client.call(request)).is_error
        return standing_id


@pytest.fixture
def caller(client: Client, place: Place) -> Caller:
    return Caller(client, place)


async def test_exactly_the_same_call_runs_as_often_as_was_said_and_is_asked_for_then(caller: Caller) -> None:
    standing_id = await caller.stand("again", calls=2)
    assert [await caller.code("again") for _ in range(4)] == ["", "", REQUIRED, REQUIRED]
    assert await caller.code("other") == REQUIRED
    assert caller.place.lines() == ["again"] * 3
    (found,) = await caller.client.standing(standing_id)
    assert (found.state, found.used, found.calls) == (USED_UP, 2, 2)
    assert await caller.client.standing() == []


async def test_arguments_must_fit_each_condition(caller: Caller) -> None:
    await caller.stand("log: one", conditions=[LINE, SMALL])
    assert await caller.code("log: two", amount=100) == ""
    assert await caller.code("log: three", amount=101) == REQUIRED
    assert await caller.code("a log: four") == REQUIRED
    assert caller.place.lines() == ["log: one", "log: two"]


async def test_values_are_told_apart_by_their_json_type(caller: Caller) -> None:
    condition = apb.ArgumentCondition(pointer="/amount", one_of_json=["1", '"2"'])
    await caller.stand("typed", amount=1, conditions=[condition])
    assert await caller.code("typed", amount=1) == ""
    assert await caller.code("typed", amount=2) == REQUIRED


async def test_one_for_a_session_is_for_no_other(caller: Caller) -> None:
    standing_id = await caller.stand("in any", in_session="s1", conditions=[SMALL])
    assert await caller.code("elsewhere", session="s2") == ""
    await caller.client.revoke(standing_id)
    await caller.stand("in one", in_session="s1", session=True, conditions=[SMALL])
    assert await caller.code("inside", session="s1") == ""
    assert await caller.code("outside", session="s2") == REQUIRED
    assert await caller.code("nowhere") == REQUIRED
    none = await caller.client.asked(caller.request("no session"))
    assert (await refused(caller.client.stand(none, session=True)))[1] == "REQUEST_INVALID"


async def test_it_is_for_the_same_caller_alone(caller: Caller, shared: tuple[Place, Sidecar]) -> None:
    await caller.stand("mine", conditions=[SMALL])
    assert await caller.code("mine too") == ""
    async with client_of(shared[1], shared[1].targets[1]) as stranger:
        other = Caller(stranger, caller.place)
        assert await other.code("not theirs") == REQUIRED
        theirs = await stranger.asked(other.request("anybody's"))
        assert (await refused(caller.client.stand(theirs)))[1] == "REQUEST_INVALID"
        assert await stranger.standing() == []
        assert not (await caller.client.decide(theirs)).decisions[0].standing_id


async def test_one_that_is_revoked_lets_nothing_begin(caller: Caller) -> None:
    standing_id = await caller.stand("taken back", conditions=[SMALL], reason="for the night")
    assert await caller.code("before") == ""
    (found,) = await caller.client.standing()
    assert (found.standing_id, found.state, found.applies, found.reason) == (standing_id, ACTIVE, True, "for the night")
    revoked = await caller.client.revoke(standing_id, "enough")
    assert (revoked.state, revoked.used, revoked.revoke_reason) == (REVOKED, 1, "enough")
    assert await caller.code("after") == REQUIRED
    assert await caller.client.standing() == []
    (kept,) = [each for each in await caller.client.standing(include_closed=True) if each.standing_id == standing_id]
    assert kept.revoked_by.authenticated_by == "unix_socket"
    closed = (grpc.StatusCode.FAILED_PRECONDITION, "APPROVAL_CLOSED")
    assert await refused(caller.client.revoke(standing_id)) == closed
    unknown = (grpc.StatusCode.NOT_FOUND, "APPROVAL_NOT_FOUND")
    assert await refused(caller.client.revoke("standing-none")) == unknown
    assert await refused(caller.client.standing("standing-none")) == unknown


async def test_it_ends_with_its_time(caller: Caller) -> None:
    standing_id = await caller.stand("brief", conditions=[SMALL], valid_for=Duration(nanos=1_000))
    assert await caller.code("late") == REQUIRED
    (found,) = await caller.client.standing(standing_id)
    assert found.state == EXPIRED
    assert await caller.client.standing() == []
    await caller.stand("longer", conditions=[SMALL], valid_for=Duration(seconds=3600))
    assert await caller.code("in time") == ""


WRONG: tuple[dict[str, Any], ...] = (
    {"valid_for": Duration(seconds=3601)},
    {"valid_for": Duration(seconds=0)},
    {"valid_for": Duration(seconds=-5)},
    {"until": Timestamp(seconds=1)},
    {"until": Timestamp(seconds=1 << 33)},
    {"until": Timestamp(seconds=1 << 33), "valid_for": Duration(seconds=5)},
    {"calls": -1},
    {"calls": 1_000_001},
    {"conditions": [apb.ArgumentCondition(pointer="/amount")]},
    {"conditions": [apb.ArgumentCondition(pointer="amount", max=1)]},
    {"conditions": [apb.ArgumentCondition(pointer="/amonut", max=1)]},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", min=1)]},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", min=1, max=0)]},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", max=float("nan"))]},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", one_of_json=["0", "x"])]},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", one_of_json=["0", "null"])]},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", one_of_json=["0", "1" * 30])]},
    {"conditions": [apb.ArgumentCondition(pointer="/line", one_of_json=['"terms"', '"\\ud800"'])]},
    {"conditions": [apb.ArgumentCondition(pointer="/line", pattern="(?=t)")]},
    {"conditions": [apb.ArgumentCondition(pointer="/line", pattern="t.{1000}")]},
    {"conditions": [SMALL] * 65},
    {"conditions": [apb.ArgumentCondition(pointer="/amount", one_of_json=["0", f'"{"x" * 16_400}"'])]},
)


async def test_terms_that_can_not_be_had_are_refused_and_decide_nothing(caller: Caller) -> None:
    approval = await caller.client.asked(caller.request("terms"))
    had = []
    for terms in WRONG:
        try:
            await caller.client.stand(approval, **terms)
        except grpc.aio.AioRpcError as error:
            if reason_of(error) == "REQUEST_INVALID":
                continue
        had.append(terms)
    assert had == []
    assert (await caller.client.list(approval.approval_id))[0].state == apb.APPROVAL_STATE_PENDING
    await caller.client.stand(approval, conditions=[LONG])


async def test_it_goes_with_an_approval_of_arguments_as_they_are(caller: Caller) -> None:
    approval = await caller.client.asked(caller.request("edited"))
    terms = apb.StandingTerms(calls=1)
    for fields in (
        {"arguments_json": caller.place.arguments("else")},
        {"choice": apb.APPROVAL_CHOICE_DENY},
        {"choice": WITHDRAW},
    ):
        decision = caller.client.decide(approval, standing=terms, **fields)
        assert (await refused(decision))[1] == "REQUEST_INVALID"
    assert (await caller.client.decide(approval, standing=terms)).state == apb.APPROVAL_STATE_APPROVED


async def test_every_rule_that_asks_must_let_it_stand(caller: Caller) -> None:
    each = await caller.client.asked(caller.request("each"))
    assert sorted((one.rule, one.standing) for one in each.requirements) == [("each", False), ("stands", True)]
    refusal = (grpc.StatusCode.PERMISSION_DENIED, "APPROVAL_NOT_ALLOWED")
    assert await refused(caller.client.stand(each)) == refusal
    await caller.stand("some", conditions=[SMALL])
    assert await caller.code("each") == REQUIRED
    legal = await caller.client.asked(caller.request("legal"))
    assert await refused(caller.client.stand(legal)) == refusal  # ada's word is wanted too
    assert await caller.code("legal") == REQUIRED
    assert await caller.code("some more") == ""
