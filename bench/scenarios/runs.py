"""Turns of mode chat on an engine that answers at once: beside the batch that one makes, and pydantic-ai's agent."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import grpc
from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1 import orchestration_service_pb2_grpc as orchestration_grpc
from fumehood.v1 import tool_service_pb2 as tool_pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from bench.clients import fumehood, runs
from bench.harness.load import Load, run
from bench.harness.processes import python, read_line, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, ratio
from bench.harness.sidecar import ECHO, sidecar, until_serving, write_config
from bench.peers.pydantic_agent import RunTurn, pydantic_agent

ISSUE = 15
"""Whose targets these are, counted like `report.ISSUE`."""

CALLS = 8
SESSIONS = 200
SHARE_OF_CALLS = 2
"""A session's turns of one round: so much of the effort's parallel calls, by whole turns."""
_NOTE = (
    "fumehood's turn is one Run; its inferences, the client library in them, and its calls take what the journal says."
    " Its own part has the way over gRPC, and a start and an end that are on disk. pydantic-ai's agent records nothing,"
    " is not asked to stream, and its tool is a coroutine of its own process."
)


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure turns of one call and of eight and the batch alone, by turns, and then many sessions at once."""
    async with AsyncExitStack() as stack:
        base_url = await stack.enter_async_context(_engine())
        ours = await stack.enter_async_context(sidecar(_config(folder, base_url)))
        await until_serving(ours.address)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(ours.address))
        agent = await stack.enter_async_context(pydantic_agent(base_url))
        await _round(channel, agent, effort.warm_calls // 3)
        rounds = [await _round(channel, agent, effort.single_calls // 4) for _ in range(effort.rounds)]
        await _sessions(channel, "warm", 1)
        turns = max(1, effort.parallel_calls // SESSIONS // SHARE_OF_CALLS)
        crowds = [await _sessions(channel, f"round-{number}", turns) for number in range(effort.rounds)]
    return _report(rounds, crowds)


class _Round:
    """Turns of one round, and the batch alone."""

    def __init__(self) -> None:
        self.ours: dict[int, list[runs.Turn]] = {1: [], CALLS: []}
        """By number of calls."""
        self.agent: dict[int, list[runs.Turn]] = {1: [], CALLS: []}
        self.batch_ms = 0.0


async def _round(channel: grpc.aio.Channel, agent: RunTurn, turns: int) -> _Round:
    found = _Round()
    for calls in (1, CALLS):
        found.ours[calls] = [await runs.run_turn(channel, calls) for _ in range(turns)]
        found.agent[calls] = [await agent(calls) for _ in range(turns)]
    found.batch_ms = (await _batches(channel, turns)).p50_ms
    return found


async def _batches(channel: grpc.aio.Channel, calls: int) -> Load:
    """The same calls as those of a turn of eight, over CallTools."""
    call = tool_pb.CallToolRequest(tool="echo", arguments_json=fumehood.ARGUMENTS)
    batch = tool_pb.CallToolsRequest(calls=[call] * CALLS)
    stub = tool_grpc.ToolServiceStub(channel)

    async def together() -> None:
        async for event in stub.CallTools(batch):
            for answer in event.answers:
                fumehood.check(answer.result)

    return await run(together, in_flight=1, calls=calls)


async def _sessions(channel: grpc.aio.Channel, name: str, turns: int) -> Load:
    """Turns of one call in new sessions, all of which have one under way until the last turns."""
    stub = orchestration_grpc.OrchestrationServiceStub(channel)
    idle = deque(f"{name}-{number}" for number in range(SESSIONS))

    async def turn() -> None:
        session = idle.popleft()
        answer = await stub.Run(pb.RunRequest(request=runs.request(1, session)))
        runs.check(answer.response, 1)
        idle.append(session)

    return await run(turn, in_flight=SESSIONS, calls=SESSIONS * turns)


def _report(rounds: Sequence[_Round], crowds: Sequence[Load]) -> Report:
    rows = [
        Row(f"a turn of chat, {_counted(calls)}", who, {name: median(_p50(found, name)) for name in _FIGURES})
        for calls in (1, CALLS)
        for who, found in (
            ("fumehood", [each.ours[calls] for each in rounds]),
            ("pydantic-ai's agent", [each.agent[calls] for each in rounds]),
        )
    ]
    batches = [each.batch_ms for each in rounds]
    crowd = {name: median(getattr(each, name) for each in crowds) for name in ("p50_ms", "p99_ms", "per_s")}
    rows += [
        Row(f"a turn of chat, {_counted(CALLS)}", "CallTools of the same", {"total_ms": median(batches)}),
        Row(f"a turn of one call in each of {SESSIONS} sessions at once", "fumehood", crowd),
    ]
    eight = _p50([each.ours[CALLS] for each in rounds], "less_engine_ms")
    loop = ratio(_p50([each.ours[1] for each in rounds], "own_ms"), _p50([each.agent[1] for each in rounds], "own_ms"))
    spread = ratio([each.p99_ms for each in crowds], [each.p50_ms for each in crowds])
    return Report(
        rows=rows,
        targets=[
            Target("turn of 8 calls p50, less the engine's / the batch's", ratio(eight, batches), 2.0, issue=ISSUE),
            Target(f"turn p99 / p50, {SESSIONS} sessions at once", spread, 5.0, issue=ISSUE),
            Target("a turn's own p50 / pydantic-ai's agent's", loop, 0.5, issue=ISSUE),
        ],
        notes=[_NOTE],
    )


_FIGURES = ("total_ms", "engine_ms", "tools_ms", "own_ms")


def _counted(calls: int) -> str:
    return "one call" if calls == 1 else f"{calls} calls at once"


def _p50(rounds: Sequence[Sequence[runs.Turn]], figure: str) -> list[float]:
    """Of each round."""
    return [median(getattr(turn, figure) for turn in turns) for turns in rounds]


def _config(folder: Path, base_url: str) -> Path:
    """Bounds that hold nobody of the sessions up."""
    return write_config(
        folder,
        f"""max_concurrent_calls = {2 * SESSIONS}

[[plugin]]
path = "{ECHO}"

[[engine]]
name = "scripted"
provider = "openai"
model = "scripted"
base_url = "{base_url}"
max_concurrent = {SESSIONS}

[orchestration]
max_runs = {2 * SESSIONS}
""",
    )


@asynccontextmanager
async def _engine() -> AsyncIterator[str]:
    command = python("bench.peers.scripted_engine")
    async with running(command) as process:
        yield f"http://127.0.0.1:{int(await read_line(process, command))}/v1"
