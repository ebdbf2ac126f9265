"""Workers that are killed at each step of a call, for each level, with and without leave to repeat."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.journal.reading import Recorded, data
from tests.sidecar import Sidecar, running_sidecar, write_plugin

pytestmark = pytest.mark.promise("S906")

BOUND_S = 60
LEVELS = ("none", "read", "write", "external")
ISOLATIONS = ("call", "process")
HEAD = """
import os
import signal
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("doomed", version="1.0.0")


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(9)  # the first process of a PID namespace has killed nobody (pid_namespaces(7))


if Path({flag!r}).exists():  # which the import that only describes is not shown
    die()


def work(step: str, name: str, effect: bool, ctx: Context) -> str:
    if step == "before" and ctx.attempt == 1:
        die()
    if effect:
        with (Path({things!r}) / name).open("a") as file:
            file.write("x")
    if step == "after" and ctx.attempt == 1:
        die()
    ctx.update("working")
    if step == "updated" and ctx.attempt == 1:
        die()
    return "done"
"""
TOOL = """

@plugin.tool(side_effects="{level}", idempotent={idempotent}, isolation="{isolation}")
def {name}(step: str, name: str, ctx: Context) -> str:
    \"\"\"Dies where it is told to, in its first attempt.\"\"\"
    return work(step, name, {effect}, ctx)
"""


def tool_name(level: str, isolation: str, *, idempotent: bool) -> str:
    return f"{level}_{isolation}_{'again' if idempotent else 'once'}"


class Doomed:
    """The plugin, and what its calls have left."""

    def __init__(self, folder: Path) -> None:
        self.recorded = Recorded(folder)
        self.things = folder / "things"
        self.things.mkdir(mode=0o777)
        self.things.chmod(0o777)
        self.flags = folder / "flags"
        self.flags.mkdir(mode=0o755)
        self.dies_at_start = self.flags / "dies-at-start"
        code = HEAD.format(things=str(self.things), flag=str(self.dies_at_start))
        for level, isolation, idempotent in itertools.product(LEVELS, ISOLATIONS, (True, False)):
            name = tool_name(level, isolation, idempotent=idempotent)
            effect = level in {"write", "external"}
            code += TOOL.format(level=level, isolation=isolation, idempotent=idempotent, name=name, effect=effect)
        self.plugin = write_plugin(folder / "plugin", "doomed", code)

    def effects(self, call_id: str) -> int:
        path = self.things / call_id
        return len(path.read_text()) if path.exists() else 0


@contextlib.contextmanager
def serving(*, dies_at_start: bool = False) -> Iterator[tuple[Doomed, Sidecar]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = Doomed(folder)
        if dies_at_start:
            made.dies_at_start.touch()
        lines = f'max_side_effects = "external"\nread = ["{made.flags}"]\nwrite = ["{made.things}"]\n' + "".join(
            f'[plugin.tools.{tool_name(level, isolation, idempotent=idempotent)}]\npermission = "allow"\n'
            for level, isolation, idempotent in itertools.product(LEVELS, ISOLATIONS, (True, False))
        )
        with running_sidecar([(made.plugin, lines)], at=folder) as sidecar:
            yield made, sidecar


@pytest.fixture(scope="module")
def doomed() -> Iterator[tuple[Doomed, Sidecar]]:
    with serving() as found:
        yield found


@pytest.mark.parametrize(
    ("isolation", "step", "attempts"),
    # Each death of a process that serves many calls lets the next start wait, so there is one round of those.
    [*itertools.product(["call"], ["before", "after", "updated"], [1, 2]), ("process", "after", 2)],
)
async def test_a_worker_that_is_killed_while_it_works_leaves_one_outcome_and_no_second_effect(
    doomed: tuple[Doomed, Sidecar], isolation: str, step: str, attempts: int
) -> None:
    made, sidecar = doomed
    async with sidecar.channel() as channel:
        stub: Any = ToolServiceStub(channel)

        async def call(level: str, *, idempotent: bool) -> str:
            """What is wrong with how it ended."""
            tool = tool_name(level, isolation, idempotent=idempotent)
            call_id = f"{tool}-{step}-{attempts}"
            arguments = json.dumps({"step": step, "name": call_id})
            request = pb.CallToolRequest(
                tool=tool, arguments_json=arguments, call_id=call_id, retry=pb.RetryPolicy(max_attempts=attempts)
            )
            result = (await stub.CallTool(request, timeout=BOUND_S)).result
            repeatable = idempotent or level in {"none", "read"}
            succeeds = repeatable and attempts > 1
            has_effect = level in {"write", "external"}
            code = "" if succeeds else "TOOL_OUTCOME_UNKNOWN" if has_effect else "TOOL_UNAVAILABLE"
            tried = attempts if repeatable else 1
            effects = has_effect * ((step != "before") + succeeds)
            again = (await stub.CallTool(request, timeout=BOUND_S)).result
            told = (await stub.GetCall(pb.GetCallRequest(call_id=call_id))).result
            wanted = (code, tried, effects, code, code, 1)
            recorded = await made.recorded.call_until(call_id, "execute_end")
            ends = len(data(recorded, "execute_end"))
            found = (result.error.code, result.attempts, made.effects(call_id), again.error.code, told.error.code, ends)
            return "" if found == wanted else f"{call_id}: {found} and not {wanted}: {result.error}"

        may_repeat = (True, False) if isolation == "call" else (True,)
        pairs = itertools.product(LEVELS, may_repeat)
        wrong = await asyncio.gather(*(call(level, idempotent=idempotent) for level, idempotent in pairs))
    assert not [each for each in wrong if each]


async def test_a_worker_that_is_killed_before_it_is_ready_leaves_no_doubt() -> None:
    with serving(dies_at_start=True) as (made, sidecar):
        async with sidecar.channel() as channel:
            stub: Any = ToolServiceStub(channel)

            async def call(level: str, isolation: str, name: str, attempts: int) -> tool_pb2.ToolResult:
                request = pb.CallToolRequest(
                    tool=tool_name(level, isolation, idempotent=True),
                    arguments_json=json.dumps({"step": "", "name": name}),
                    call_id=f"{level}-{isolation}-{name}",
                    retry=pb.RetryPolicy(max_attempts=attempts),
                )
                result: tool_pb2.ToolResult = (await stub.CallTool(request, timeout=BOUND_S)).result
                return result

            for level, isolation in itertools.product(("read", "write", "external"), ISOLATIONS):
                result = await call(level, isolation, "dead", 1)
                assert (result.error.code, result.attempts) == ("TOOL_UNAVAILABLE", 0), result
                events = await made.recorded.call_until(result.call_id, "execute_end")
                assert not data(events, "execute_attempt"), "nothing was sent"
            made.dies_at_start.unlink()
            pairs = itertools.product(LEVELS, ISOLATIONS)
            controls = await asyncio.gather(*(call(level, isolation, "alive", 5) for level, isolation in pairs))
            assert not [each for each in controls if each.is_error]
