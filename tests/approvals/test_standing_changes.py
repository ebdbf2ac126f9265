"""What a standing approval outlives, what voids it, who may give and revoke it, and what of it a kill can't undo."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import plugin_service_pb2 as ppb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.verify import verify

from tests.approvals.support import BOUND_S, Client, Place, client_of, reason_in
from tests.callers.support import token_of
from tests.rpc.support import refused
from tests.sidecar import Sidecar

REQUIRED = "TOOL_APPROVAL_REQUIRED"
RULE = """
[[policy.rule]]
name = "{}"
permission = "require_approval"
standing = true
"""
RULES = RULE.format("stands")
ANY = apb.ArgumentCondition(pointer="/amount", max=100)
IDS = itertools.count()
CODE = """
import json
from pathlib import Path
from fumehood_sdk import Context, Plugin, Transient

plugin = Plugin("diary", version="1.0.0")


@plugin.tool(side_effects="write", isolation="process", sequential=True)
def note(folder: str, line: str, amount: int = 0) -> int:
    \"\"\"Adds a line once its pipe is opened, where it has one.\"\"\"
    pipe = Path(folder) / line
    if pipe.exists():
        pipe.read_text()
    with (Path(folder) / "diary").open("a") as file:
        file.write(line + "\\n")
    return 0


@plugin.tool(side_effects="write", isolation="process", idempotent=True)
def flaky(folder: str, ctx: Context, amount: int = 0) -> int:
    \"\"\"Fails at first.\"\"\"
    with (Path(folder) / "diary").open("a") as file:
        file.write(f"attempt {ctx.attempt}\\n")
    if ctx.attempt < 3:
        raise Transient("not yet")
    return ctx.attempt
"""


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        found = Place(folder)
        (found.code / "diary.py").write_text(CODE)
        yield found


def request(place: Place, line: str) -> pb.CallToolRequest:
    return place.call(line, f"call-{next(IDS)}", at_once=True)


async def code(client: Client, place: Place, line: str) -> str:
    return str((await client.call(request(place, line))).error.code)


async def given(approver: Client, asker: Client, place: Place, line: str, **terms: Any) -> str:
    """Have a call approved, and calls like it; it runs by its own approval."""
    asked = request(place, line)
    standing_id = await approver.stand(await asker.asked(asked), **terms)
    assert not (await asker.call(asked)).is_error
    return standing_id


async def killed(sidecar: Sidecar) -> None:
    sidecar.process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(sidecar.process.wait, BOUND_S)


async def used(client: Client, standing_id: str, count: int) -> None:
    """Return once so many calls have begun with it."""
    async with asyncio.timeout(BOUND_S):
        while (await client.standing(standing_id))[0].used != count:
            pass


async def test_it_outlives_kills_and_counts_on(place: Place) -> None:
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            standing_id = await given(client, client, place, "first", calls=2, conditions=[ANY])
            assert await code(client, place, "second") == ""
            await killed(sidecar)
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            (found,) = await client.standing()
            assert (found.standing_id, found.used, found.applies) == (standing_id, 1, True)
            assert [await code(client, place, line) for line in ("third", "fourth")] == ["", REQUIRED]
    assert place.lines() == ["first", "second", "third"]
    with contextlib.closing(SqliteReader(place.folder / ".fumehood" / "journal.db")) as reader:
        assert verify(reader, public_keys(place.folder / ".fumehood")).fault is None


async def test_what_it_is_bound_to_must_be_as_it_was(place: Place) -> None:
    async def change(client: Client, sidecar: Sidecar, old: str, new: str) -> None:
        path = sidecar.folder / "fumehood.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())

    async def applies(client: Client) -> bool:
        return (await client.standing(standing_id))[0].applies

    more = place.folder / "more"
    more.mkdir()
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            standing_id = await given(client, client, place, "given", conditions=[ANY])
            for old, new in (
                ('name = "stands"', 'name = "other"'),
                ("standing = true", "standing = false"),
                ("write = [", f'write = ["{more}", '),
            ):
                assert (await code(client, place, "as before"), await applies(client)) == ("", True)
                await change(client, sidecar, old, new)
                assert (await code(client, place, "changed"), await applies(client)) == (REQUIRED, False)
                await change(client, sidecar, new, old)
    module = place.code / "diary.py"
    module.write_text(module.read_text() + "# changed\n")
    (place.folder / "fumehood.lock").unlink()
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            assert (await code(client, place, "changed"), await applies(client)) == (REQUIRED, False)
    assert place.lines() == ["given", *["as before"] * 3]


async def test_callers_with_names_give_and_revoke_what_they_may_approve(place: Place) -> None:
    rules = RULES + "".join(
        f'[[caller]]\nname = "{name}"\ntools = {tools}\napprove = {approve}\n'
        for name, tools, approve in (
            ("agent", '["*"]', '["*"]'),
            ("guest", '["*"]', "[]"),
            ("ada", "[]", '["note"]'),
            ("eve", "[]", '["other"]'),
        )
    )
    with place.sidecar(rules, server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
        async with contextlib.AsyncExitStack() as stack:
            agent, guest, ada, eve = [
                await stack.enter_async_context(client_of(sidecar, sidecar.targets[1], token_of(sidecar.folder, name)))
                for name in ("agent", "guest", "ada", "eve")
            ]
            own = await agent.asked(request(place, "own"))
            assert (await refused(agent.stand(own)))[1] == "APPROVAL_NOT_ALLOWED"
            standing_id = await given(ada, agent, place, "agent's", conditions=[ANY])
            assert [await code(each, place, "more") for each in (agent, guest)] == ["", REQUIRED]
            assert [len(await each.standing()) for each in (ada, agent, guest, eve)] == [1, 1, 0, 0]
            for each in (guest, eve):
                assert (await refused(each.revoke(standing_id)))[1] == "APPROVAL_NOT_FOUND"
                assert (await refused(each.standing(standing_id)))[1] == "APPROVAL_NOT_FOUND"
            assert await code(agent, place, "still") == ""
            revoked = await ada.revoke(standing_id, "enough")
            assert (revoked.granted_by.name, revoked.revoked_by.name, revoked.caller.name) == ("ada", "ada", "agent")
            assert await code(agent, place, "no more") == REQUIRED
    assert place.lines() == ["agent's", "more", "still"]


async def test_the_asking_caller_gives_itself_one_where_the_rule_says_so(place: Place) -> None:
    rules = RULES + 'self_approval = true\n[[caller]]\nname = "agent"\ntools = ["*"]\napprove = ["*"]\n'
    with place.sidecar(rules, server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
        async with client_of(sidecar, sidecar.targets[1], token_of(sidecar.folder, "agent")) as agent:
            await given(agent, agent, place, "own", calls=1, conditions=[ANY])
            assert [await code(agent, place, line) for line in ("second", "third")] == ["", REQUIRED]
    assert place.lines() == ["own", "second"]


class Held:
    """A call that has its tool's turn until it is let go."""

    def __init__(self, client: Client, place: Place) -> None:
        self._client, self._place = client, place
        self._path = place.diary / "held"
        os.mkfifo(self._path)
        self._path.chmod(0o666)

    async def __aenter__(self) -> tuple[Held, str]:
        """With a standing approval for two calls more."""
        asked = request(self._place, "held")
        standing_id = await self._client.stand(await self._client.asked(asked), calls=2, conditions=[ANY])
        self.call = asyncio.create_task(self._client.call(asked))
        # It returns once the tool has opened the other end.
        self._end = await asyncio.to_thread(os.open, self._path, os.O_WRONLY)
        return self, standing_id

    async def __aexit__(self, *_: object) -> None:
        self.let_go()
        with contextlib.suppress(Exception):
            await self.call

    def let_go(self) -> None:
        end, self._end = self._end, -1
        if end >= 0:
            os.close(end)
            self._path.unlink()


async def test_a_call_that_waits_for_its_turn_when_it_is_revoked_is_not_sent(place: Place) -> None:
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client, Held(client, place) as (held, standing_id):
            waits: asyncio.Task[tool_pb2.ToolResult] = asyncio.create_task(client.call(request(place, "revoked")))
            await used(client, standing_id, 1)
            await client.revoke(standing_id, "stop")
            control = await given_while_held(client, place)
            held.let_go()
            result = await waits
            assert (result.error.code, reason_in(result)) == ("TOOL_DENIED", "approval_revoked")
            assert not (await control).is_error
    assert place.lines() == ["held", "control"]


async def given_while_held(client: Client, place: Place) -> asyncio.Task[tool_pb2.ToolResult]:
    """A call that waits too, by a standing approval that nobody revokes."""
    asked = request(place, "unused")
    standing_id = await client.stand(await client.asked(asked), conditions=[ANY])
    task = asyncio.create_task(client.call(request(place, "control")))
    await used(client, standing_id, 1)
    return task


async def test_a_kill_between_its_use_and_the_dispatch_takes_the_use_along(place: Place) -> None:
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client, Held(client, place) as (_, standing_id):
            waits = asyncio.create_task(client.call(request(place, "lost")))
            await used(client, standing_id, 1)
            await killed(sidecar)
            with contextlib.suppress(Exception):
                await waits
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            assert (await client.standing(standing_id))[0].used == 1
            assert [await code(client, place, line) for line in ("last", "beyond")] == ["", REQUIRED]
    assert "lost" not in place.lines()
    assert place.lines()[-1] == "last"


async def test_attempts_of_one_call_are_one_use(place: Place) -> None:
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            call = pb.CallToolRequest(
                tool="flaky",
                arguments_json=f'{{"folder": "{place.diary}"}}',
                call_id="flaky-1",
                return_if_approval_required=True,
            )
            call.retry.max_attempts = 3
            standing_id = await client.stand(await client.asked(call), conditions=[ANY_FOLDER])
            assert not (await client.call(call)).is_error
            call.call_id = "flaky-2"
            result = await client.call(call)
            assert (result.is_error, result.attempts) == (False, 3)
            assert (await client.standing(standing_id))[0].used == 1
    assert place.lines() == ["attempt 1", "attempt 2", "attempt 3"] * 2


ANY_FOLDER = apb.ArgumentCondition(pointer="/folder", pattern="^/")


async def test_calls_that_wait_already_go_on_with_it_as_far_as_it_goes(place: Place) -> None:
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            waiting = [
                asyncio.create_task(client.call(place.call(f"waits {number}", f"waits-{number}")))
                for number in range(5)
            ]
            seen: dict[str, apb.Approval] = {}
            async for each in client.watch():
                if each.HasField("approval"):
                    seen[each.approval.approval_id] = each.approval
                if len(seen) == len(waiting):
                    break
            first = next(iter(seen.values()))
            await client.stand(first, calls=3, conditions=[ANY])
            done, left = set[Any](), {*waiting}
            while len(done) < 4:
                more, left = await asyncio.wait(left, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED)
                assert more
                done |= more
            assert not any(each.result().is_error for each in done)
            (last,) = left
            open_ones = [each for each in await client.list() if each.state == apb.APPROVAL_STATE_PENDING]
            (approval,) = open_ones
            assert approval.approval_id in seen, "who waits on is asked for by the same approval"
            await client.decide(approval)
            assert not (await last).is_error
    assert sorted(place.lines()) == [f"waits {number}" for number in range(5)]


async def test_one_for_a_call_that_was_denied_changes_nothing_for_that_call(place: Place) -> None:
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            no = request(place, "no")
            await client.decide(await client.asked(no), apb.APPROVAL_CHOICE_DENY)
            await given(client, client, place, "yes", conditions=[ANY])
            assert reason_in(await client.call(no)) == "approval_denied"
            assert await code(client, place, "no") == ""
    assert place.lines() == ["yes", "no"]
