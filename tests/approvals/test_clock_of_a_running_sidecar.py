"""The machine's clock is set back, or forward, under a sidecar that serves: nothing lasts longer, or comes back.

Each wait is for something that the sidecar does after a few seconds of real time. Were it to go by the clock that was
set back, it would do so after an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import tool_pb2

from tests.approvals.support import BOUND_S, Client, Place, client_of
from tests.machine_clock import MachineClock
from tests.sidecar import Sidecar

pytestmark = pytest.mark.slow("what has a time is waited for, under a clock that is asked by files")

HOUR_S = 3_600
EXPIRED = apb.APPROVAL_STATE_EXPIRED
ASKED = "TOOL_APPROVAL_REQUIRED"
LASTS_S = 8
"""Of all that ends by itself while a test waits for that; a call that was approved begins within it."""
RULES = """
[[policy.rule]]
name = "stands"
permission = "require_approval"
tools = ["note"]
standing = true
when = [{ pointer = "/line", pattern = "^s" }]
[[policy.rule]]
name = "free"
permission = "allow"
tools = ["note"]
[[policy.rule]]
name = "asks"
permission = "require_approval"
tools = ["note"]
when = [{ pointer = "/line", pattern = "^a" }]
[[policy.quota]]
name = "some"
tools = ["note"]
sum = "/amount"
max = 10
window = "WINDOW"
[approvals]
decide_within_s = LASTS
use_within_s = LASTS
"""


def rules(lasts_s: int) -> str:
    return RULES.replace("WINDOW", f"{lasts_s}s").replace("LASTS", str(lasts_s))


@pytest.fixture
def place() -> Iterator[tuple[Place, MachineClock]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Place(folder), MachineClock(folder)


@contextlib.asynccontextmanager
async def serving(
    place: tuple[Place, MachineClock], lasts_s: int = LASTS_S
) -> AsyncIterator[tuple[Place, MachineClock, Sidecar, Client]]:
    made, clock = place
    with made.sidecar(rules(lasts_s), environment=clock.environment) as sidecar:
        async with client_of(sidecar) as client:
            # The plugin's first process takes its time, which is none of what is waited for.
            assert why(await client.call(made.call("warm", uuid.uuid4().hex, at_once=True, amount=0))) == ""
            yield made, clock, sidecar, client


def why(result: tool_pb2.ToolResult) -> str:
    """Empty: it ran."""
    return str(json.loads(result.error.details_json).get("reason") or result.error.code) if result.is_error else ""


async def first_to_run(client: Client, place: Place, line: str, amount: int) -> None:
    """Return once a call of these arguments runs. Each time it is another call."""
    number, said = 0, "-"
    async with asyncio.timeout(BOUND_S):
        while said:
            number += 1
            said = why(await client.call(place.call(line, f"{line}-{number}", at_once=True, amount=amount)))
            await asyncio.sleep(0.02)


async def first_to_ask(client: Client, place: Place, line: str) -> None:
    """Return once a call of these arguments asks for an approval."""
    number, said = 0, ""
    async with asyncio.timeout(BOUND_S):
        while said != ASKED:
            number += 1
            said = why(await client.call(place.call(line, f"{line}-{number}", at_once=True)))
            assert said in {"", ASKED}
            await asyncio.sleep(0.02)


def test_what_runs_under_the_clock_has_its_time_and_sleeps_like_others(tmp_path: Path) -> None:
    clock = MachineClock(tmp_path)
    clock.set(-HOUR_S)
    code = "import time; time.sleep(0.001); print(time.time())"
    done = subprocess.run([sys.executable, "-c", code], env=clock.environment, stdout=subprocess.PIPE, check=True)
    assert float(done.stdout) < time.time() - HOUR_S / 2


async def test_what_has_a_time_ends_by_it_when_the_clock_was_set_back(place: tuple[Place, MachineClock]) -> None:
    async with serving(place) as (made, clock, _, client):
        undecided = await client.asked(made.call("asked", "undecided", at_once=True))
        given = await client.decide(await client.asked(made.call("asked", "given", at_once=True)))
        standing_id = await client.stand(
            await client.asked(made.call("stands", "stands", at_once=True)), valid_for={"seconds": LASTS_S}
        )
        assert why(await client.call(made.call("free", "spends", at_once=True, amount=10))) == ""
        clock.set(-HOUR_S)
        assert why(await client.call(made.call("free", "more", at_once=True, amount=1))) == "quota_exceeded"
        assert why(await client.call(made.call("stands", "stands-still", at_once=True))) == ""
        await client.until(undecided.approval_id, EXPIRED)
        await client.until(given.approval_id, EXPIRED)
        await first_to_ask(client, made, "stands")
        (found,) = await client.standing(standing_id)
        assert found.state == apb.STANDING_APPROVAL_STATE_EXPIRED
        await first_to_run(client, made, "free", 10)


async def test_what_is_given_after_the_clock_was_set_back_counts_from_then(place: tuple[Place, MachineClock]) -> None:
    async with serving(place) as (made, clock, _, client):
        clock.set(-HOUR_S)
        # Longer than an approval lasts.
        await client.until((await client.asked(made.call("asked", "late", at_once=True))).approval_id, EXPIRED)
        await client.decide(await client.asked(made.call("asked", "given", at_once=True)))
        assert why(await client.call(made.call("asked", "given"))) == ""
        assert made.lines() == ["warm", "asked"]


async def test_a_restart_under_a_clock_that_was_set_back_gives_no_more_time(place: tuple[Place, MachineClock]) -> None:
    async with serving(place) as (made, clock, sidecar, client):
        clock.set(-HOUR_S)
        await client.until((await client.asked(made.call("asked", "late", at_once=True))).approval_id, EXPIRED)
        given = await client.decide(await client.asked(made.call("asked", "given", at_once=True)))
        assert why(await client.call(made.call("free", "spends", at_once=True, amount=10))) == ""
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()
    async with serving(place) as (made, clock, _, client):
        await client.until(given.approval_id, EXPIRED)
        await first_to_run(client, made, "free", 10)


async def test_what_a_clock_set_forward_has_ended_does_not_come_back(place: tuple[Place, MachineClock]) -> None:
    async with serving(place, HOUR_S // 2) as (made, clock, _, client):
        undecided = await client.asked(made.call("asked", "undecided", at_once=True))
        given = await client.decide(await client.asked(made.call("asked", "given", at_once=True)))
        await client.stand(
            await client.asked(made.call("stands", "stands", at_once=True)), valid_for={"seconds": HOUR_S // 2}
        )
        assert why(await client.call(made.call("free", "spends", at_once=True, amount=10))) == ""
        assert why(await client.call(made.call("stands", "stands-still", at_once=True))) == ""
        clock.set(HOUR_S)
        assert why(await client.call(made.call("stands", "ahead", at_once=True))) == ASKED
        assert why(await client.call(made.call("free", "ahead-free", at_once=True, amount=10))) == ""
        clock.set(0)
        for each in (undecided, given):
            assert why(await client.call(made.call("asked", each.call_id, at_once=True))) == "approval_expired"
            await client.until(each.approval_id, EXPIRED)
        assert why(await client.call(made.call("stands", "back", at_once=True))) == ASKED
        # What was spent ahead is not forgotten, and not counted twice.
        assert why(await client.call(made.call("free", "back-free", at_once=True, amount=1))) == "quota_exceeded"
        assert made.lines() == ["warm", "free", "stands", "free"]
