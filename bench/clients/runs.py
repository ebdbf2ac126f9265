"""A turn of mode chat on the scripted engine: how long it takes, and what of it is the engine's and the tools'."""

from __future__ import annotations

import time
from dataclasses import dataclass

import grpc
import orjson
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import journal_service_pb2_grpc as journal_grpc
from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1 import orchestration_service_pb2_grpc as orchestration_grpc

from bench.payload import TEXT

_INFERRED, _STARTED, _ENDED = "inference_end", "execute_start", "execute_end"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn, whoever's loop it is."""

    total_ms: float
    engine_ms: float
    tools_ms: float
    """From the start of the first call to the end of the last."""

    @property
    def less_engine_ms(self) -> float:
        """What the loop and its tools take."""
        return self.total_ms - self.engine_ms

    @property
    def own_ms(self) -> float:
        """What the loop takes."""
        return self.total_ms - self.engine_ms - self.tools_ms


def request(calls: int, session: str = "") -> pb.SystemRequest:
    """Ask the scripted engine, which has the tool called so many times at once and then says something."""
    message = pb.Message(role=pb.MESSAGE_ROLE_USER, text=str(calls))
    return pb.SystemRequest(messages=[message], mode=pb.MODE_CHAT, session_id=session)


def check(response: pb.SystemResponse, calls: int) -> None:
    """Raise RuntimeError unless the turn went as scripted."""
    made = response.tool_calls_made
    if response.HasField("error") or response.content != TEXT or len(made) != calls:
        raise RuntimeError(f"not the scripted turn: {response}")
    failed = [each for each in made if each.HasField("error")]
    if failed:
        raise RuntimeError(f"a call failed: {failed[0]}")


async def run_turn(channel: grpc.aio.Channel, calls: int) -> Turn:
    """Run one turn. The journal tells how long its inferences and calls took."""
    runs, journal = orchestration_grpc.OrchestrationServiceStub(channel), journal_grpc.JournalServiceStub(channel)
    begun = time.perf_counter()
    response = (await runs.Run(pb.RunRequest(request=request(calls)))).response
    total_s = time.perf_counter() - begun
    check(response, calls)
    asked = journal_pb.EventFilter(request_id=response.request_id, types=[_INFERRED, _STARTED, _ENDED])
    events = (await journal.ListEvents(journal_pb.ListEventsRequest(filter=asked))).events
    inferred_us = [orjson.loads(each.body_json)["data"]["duration_us"] for each in events if each.type == _INFERRED]
    started_ns = [each.time.ToNanoseconds() for each in events if each.type == _STARTED]
    ended_ns = [each.time.ToNanoseconds() for each in events if each.type == _ENDED]
    if (len(inferred_us), len(started_ns), len(ended_ns)) != (2, calls, calls):
        raise RuntimeError(f"not the events of a turn of {calls} calls: {[each.type for each in events]}")
    return Turn(
        total_ms=total_s * 1e3,
        engine_ms=sum(inferred_us) / 1e3,
        tools_ms=(max(ended_ns) - min(started_ns)) / 1e6,
    )
