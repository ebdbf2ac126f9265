"""Two sidecars on one PostgreSQL: a standing approval of one counts at both, and never for more calls than it may."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import approval_service_pb2 as apb

from tests.approvals.support import BOUND_S, Place, client_of
from tests.postgresql import PostgresServer
from tests.sidecar import Sidecar

RULES = """
[[policy.rule]]
name = "stands"
permission = "require_approval"
standing = true
[journal]
store = "{}"
"""
ANY = apb.ArgumentCondition(pointer="/amount", max=100)
AT_ONCE = 12


@pytest.fixture
def pair(postgres_server: PostgresServer) -> Iterator[tuple[Place, Sidecar, Sidecar]]:
    url = postgres_server.new_database()
    with tempfile.TemporaryDirectory(prefix="fh-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        found = []
        for each in ("a", "b"):
            (folder / each).mkdir()
            found.append(stack.enter_context(place.sidecar(RULES.format(url), at=folder / each)))
        yield place, found[0], found[1]


@pytest.mark.slow("many calls at once on two sidecars")
async def test_no_more_calls_begin_with_it_than_may_whichever_sidecar_they_come_to(
    pair: tuple[Place, Sidecar, Sidecar],
) -> None:
    place, one, two = pair
    async with client_of(one) as first, client_of(two) as second:
        asked = place.call("given", "given", at_once=True)
        standing_id = await first.stand(await second.asked(asked), calls=7, conditions=[ANY])
        assert not (await second.call(asked)).is_error
        results = await asyncio.gather(
            *(
                (first, second)[number % 2].call(place.call(f"line {number}", f"call-{number}", at_once=True))
                for number in range(2 * AT_ONCE)
            )
        )
        codes = [each.error.code for each in results]
        assert (codes.count(""), codes.count("TOOL_APPROVAL_REQUIRED")) == (7, 2 * AT_ONCE - 7)
        (found,) = await second.standing(standing_id)
        assert (found.used, found.state) == (7, apb.STANDING_APPROVAL_STATE_USED_UP)
        twice = place.call("twice", "twice", at_once=True)
        await second.stand(await first.asked(twice), calls=1, conditions=[ANY])
        same = place.call("same", "same", at_once=True)
        results = await asyncio.gather(*(each.call(same) for each in (first, second)))
        assert [each.error.code for each in results] == ["", ""], "it is one call, and asks for nothing more"
    assert place.lines().count("same") == 1
    assert len(place.lines()) == 9


async def test_one_call_that_waits_at_both_begins_once_with_the_last_use_and_is_answered_at_both(
    pair: tuple[Place, Sidecar, Sidecar],
) -> None:
    place, one, two = pair
    async with client_of(one) as first, client_of(two) as second:
        waits = [asyncio.create_task(each.call(place.call("waits", "waits"))) for each in (first, second)]
        await first.one()
        asked = place.call("given", "given", at_once=True)
        await first.stand(await first.asked(asked), calls=1, conditions=[ANY])
        assert [(await each).error.code for each in waits] == ["", ""]
    assert place.lines() == ["waits"]


async def test_what_one_sidecar_gives_or_revokes_counts_at_the_other_at_once_and_after_a_kill(
    pair: tuple[Place, Sidecar, Sidecar],
) -> None:
    place, one, two = pair
    async with client_of(one) as first, client_of(two) as second:
        waits = asyncio.create_task(second.call(place.call("waits", "waits")))
        await second.one()
        asked = place.call("given", "given", at_once=True)
        standing_id = await first.stand(await first.asked(asked), calls=3, conditions=[ANY])
        assert not (await waits).is_error
        one.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(one.process.wait, BOUND_S)
        assert not (await second.call(place.call("after", "after", at_once=True))).is_error
        (found,) = await second.standing()
        assert (found.standing_id, found.used) == (standing_id, 2)
        await second.revoke(standing_id)
        assert (await second.call(place.call("no", "no", at_once=True))).error.code == "TOOL_APPROVAL_REQUIRED"
    assert place.lines() == ["waits", "after"]
