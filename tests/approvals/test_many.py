"""Two sidecars on one PostgreSQL decide about the same approvals; and a thousand callers wait for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from fumehood.v1 import tool_service_pb2 as pb

from tests.approvals.support import BOUND_S, DENY, Place, client_of, reason_in
from tests.postgresql import PostgresServer
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar

WAITING = 1_000


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


async def test_a_thousand_calls_that_wait_take_no_processor(folder: Path) -> None:
    place = Place(folder)
    with place.sidecar(server=f"max_concurrent_calls = {4 * WAITING}") as sidecar:
        async with client_of(sidecar) as client:
            process = psutil.Process(sidecar.process.pid)
            idle_s = await _used_s(process)
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
            # A margin of two clock ticks (10 ms each): a thousand timers of a second would take ten times as much.
            assert await _used_s(process) <= idle_s + 0.02
            (one,) = await client.list(seen.pop())
            await client.decide(one)
            assert not (await stream.read()).finished.is_error
            stream.cancel()


async def _used_s(process: psutil.Process, seconds: float = 1.0) -> float:
    """Processor time of a stretch, which is what is measured."""
    before = process.cpu_times()
    await asyncio.sleep(seconds)
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)
