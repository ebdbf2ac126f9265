"""Two sidecars on one PostgreSQL decide about the same approvals; and a thousand callers wait for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.config.database import Database
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import verify

from tests.approvals.support import APPROVE, BOUND_S, DENY, Client, Place, client_of, reason_in
from tests.callers.support import token_of
from tests.postgresql import PostgresServer
from tests.rpc.support import metadata_of, reason_of
from tests.sidecar import Sidecar

WAITING = 1_000
ROUNDS = 20
STRETCHES = 3
IDLE_S = 0.05
"""Processor time of an idle sidecar in the least busy of the stretches: it is told in ticks of 10 ms, a user's and a
system's, and what a busy machine puts off may fall into one. A thousand timers of a second would take 0.2 s of each."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def pair(postgres_server: PostgresServer, folder: Path) -> Iterator[tuple[Place, Sidecar, Sidecar]]:
    url = postgres_server.new_database()
    place = Place(folder)
    with contextlib.ExitStack() as stack:
        found = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            found.append(stack.enter_context(place.sidecar(f'[journal]\nstore = "{url}"\n', at=folder / name)))
        yield place, found[0], found[1]


async def _outcome(decision: object) -> str:
    try:
        await decision  # type: ignore[misc] # a coroutine
    except grpc.aio.AioRpcError as exc:
        return reason_of(exc)
    return "done"


async def test_two_sidecars_give_one_decision_and_one_use(pair: tuple[Place, Sidecar, Sidecar]) -> None:
    place, one, two = pair
    async with client_of(one) as first, client_of(two) as second:
        for number in range(5):
            line = f"line-{number}"
            approval = await first.asked(place.call(line, line, at_once=True))
            said = await asyncio.gather(
                _outcome(first.decide(approval)), _outcome(second.decide(approval, DENY)), return_exceptions=False
            )
            assert sorted(said) == ["APPROVAL_CLOSED", "done"]
            results = await asyncio.gather(*(each.call(place.call(line, line)) for each in (first, second)))
            if said[0] == "done":
                assert [each.is_error for each in results] == [False, False]
            else:
                assert [reason_in(each) for each in results] == ["approval_denied"] * 2
            assert place.lines().count(line) == (said[0] == "done")


@pytest.mark.slow("many rounds of what comes before")
async def test_many_who_decide_and_use_at_once_on_two_sidecars_give_one_decision_and_one_use_each(
    postgres_server: PostgresServer, folder: Path
) -> None:
    url, place = postgres_server.new_database(), Place(folder)
    names = ("ada", "bob", "eve", "agent")
    more = f'[journal]\nstore = "{url}"\n'
    more += "".join(f'[[caller]]\nname = "{name}"\ntools = ["*"]\napprove = ["*"]\n' for name in names)
    async with contextlib.AsyncExitStack() as stack:
        sidecars = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            server = 'listen = ["unix:s", "127.0.0.1:0"]\nmax_concurrent_calls = 1000'
            sidecars.append(stack.enter_context(place.sidecar(more, at=folder / name, server=server)))
        clients = {
            name: [
                await stack.enter_async_context(client_of(each, each.targets[1], token_of(each.folder, name)))
                for each in sidecars
            ]
            for name in names
        }
        agents = clients["agent"]
        ids = [f"line-{number}" for number in range(ROUNDS)]
        # Who is quicker is chance: of the mixed rounds all may end alike. In the first two all three say the same.
        choices = [(APPROVE,) * 3, (DENY,) * 3, *[(APPROVE, DENY, APPROVE)] * (ROUNDS - 2)]
        rounds = zip(ids, choices, strict=True)
        outcomes = await asyncio.gather(*(_one_round(place, call_id, said, clients) for call_id, said in rounds))
        for call_id, (approval_id, winner) in zip(ids, outcomes, strict=True):
            for each in agents:
                (found,) = await each.list(approval_id)
                assert [(one.by.name, one.choice) for one in found.decisions] == [winner]
                assert found.state == (apb.APPROVAL_STATE_USED if winner[1] == APPROVE else apb.APPROVAL_STATE_DENIED)
            assert place.lines().count(call_id) == (winner[1] == APPROVE)
    with contextlib.closing(DatabasePlace(Database(url)).open_reader()) as reader:
        found_events = reader.events(EventFilter(types=frozenset({"approval_decided", "approval_used"})), limit=10_000)
        counted = Counter((each["type"], each["call_id"]) for each in (decode(each.body) for each in found_events))
        keys = [key for sidecar in sidecars for key in public_keys(sidecar.folder / ".fumehood")]
        assert verify(reader, keys).fault is None
    assert counted == Counter(
        [("approval_decided", call_id) for call_id in ids]
        + [
            ("approval_used", call_id)
            for call_id, (_, winner) in zip(ids, outcomes, strict=True)
            if winner[1] == APPROVE
        ]
    )
    assert {winner[1] for _, winner in outcomes} == {APPROVE, DENY}


async def _one_round(
    place: Place, call_id: str, choices: tuple[apb.ApprovalChoice.ValueType, ...], clients: dict[str, list[Client]]
) -> tuple[str, tuple[str, int]]:
    """Callers on both sidecars wait with one id while three people decide on both. Who won, and what they said."""
    agents = clients["agent"]
    approval = await agents[0].asked(place.call(call_id, call_id, at_once=True))
    calls = [asyncio.create_task(each.call(place.call(call_id, call_id))) for each in agents for _ in range(2)]
    people = zip(("ada", "bob", "eve"), choices, strict=True)
    tried = [(name, choice, each) for name, choice in people for each in clients[name]]
    random.Random(call_id).shuffle(tried)  # noqa: S311 - the order of a test
    said = await asyncio.gather(*(_told(each.decide(approval, choice)) for _, choice, each in tried))
    (winner,) = [(name, choice) for (name, choice, _), told in zip(tried, said, strict=True) if told is None]
    for (name, choice, _), told in zip(tried, said, strict=True):
        if told is not None:
            assert (told["reason"], told["decided_by"]) == ("APPROVAL_CLOSED", winner[0]), (name, choice, told)
    results = await asyncio.gather(*calls)
    assert len({(each.is_error, each.error.code, each.details_json) for each in results}) == 1, results
    assert results[0].is_error == (winner[1] == DENY), results[0].error
    return approval.approval_id, winner


async def _told(decision: Awaitable[object]) -> dict[str, str] | None:
    """What a refusal says of who was quicker. None: nobody was."""
    try:
        await decision
    except grpc.aio.AioRpcError as exc:
        return {"reason": reason_of(exc), **metadata_of(exc)}
    return None


async def test_a_call_of_one_sidecar_goes_on_when_another_is_told(pair: tuple[Place, Sidecar, Sidecar]) -> None:
    place, one, two = pair
    async with client_of(one) as first, client_of(two) as second:
        call = asyncio.create_task(first.call(place.call("told", "told")))
        await second.decide(await second.one())
        assert not (await call).is_error
        denied = asyncio.create_task(second.call(place.call("denied", "denied")))
        await first.decide(await first.one(), DENY)
        assert reason_in(await denied) == "approval_denied"
    assert place.lines() == ["told"]


@pytest.mark.slow("a thousand calls, and stretches of time in which nothing is to happen")
async def test_a_thousand_calls_that_wait_take_no_processor(folder: Path) -> None:
    place = Place(folder)
    with place.sidecar(server=f"max_concurrent_calls = {4 * WAITING}") as sidecar:
        async with client_of(sidecar) as client:
            process = psutil.Process(sidecar.process.pid)
            stream = client.tools.Session(timeout=4 * BOUND_S)
            for number in range(WAITING):
                call = place.call("waits", f"waits-{number}")
                await stream.write(pb.SessionRequest(call=call))
            seen: set[str] = set()
            async for each in client.watch():
                if each.HasField("approval"):
                    seen.add(each.approval.approval_id)
                if len(seen) == WAITING:
                    break
            assert min([await _used_s(process) for _ in range(STRETCHES)]) <= IDLE_S
            (one,) = await client.list(seen.pop())
            await client.decide(one)
            assert not (await stream.read()).finished.is_error
            stream.cancel()


async def _used_s(process: psutil.Process) -> float:
    """Processor time of a stretch of a second, which is what is measured."""
    before = process.cpu_times()
    await asyncio.sleep(1)
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)
