"""Turn by turn: A B C A B C…, so that whatever else the machine does falls on all contenders alike.

Clients are started anew each round, and with them the servers that they start: a server over stdio lives as long as its
caller's session. The sidecar and the bare gRPC server go on, as servers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

from bench.harness.contender import contender
from bench.harness.load import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    single_calls: int
    """Calls of one round with one in flight."""
    parallel_calls: int
    """Calls of one round with 32 in flight."""
    warm_calls: int
    starts: int
    """Starts of each contender."""
    idle_s: float
    """How long the idle sidecar is watched."""
    plugins: int
    """Plugins of the large catalog; each has ten tools."""


FULL = Effort(rounds=9, single_calls=400, parallel_calls=1600, warm_calls=300, starts=7, idle_s=10.0, plugins=100)
QUICK = Effort(rounds=2, single_calls=60, parallel_calls=200, warm_calls=60, starts=1, idle_s=1.0, plugins=10)
"""Shows that everything runs. Its figures mean little."""

IN_FLIGHT = 32
SLICES = 4
"""Turns of each contender in one round. On a shared machine the load changes within a second, which is one turn of a
slow one: of shorter turns more fall under the same load."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One turn of a contender: alone, and with 32 in flight."""

    single: Load
    parallel: Load


@dataclass(frozen=True, slots=True)
class Entrant:
    """Who takes part: a name, and the command of a load client."""

    name: str
    command: Sequence[str]
    warmth: int = 1
    """How many times the usual number of calls come before the measured ones."""


Rounds = Mapping[str, Sequence[Pair]]


async def take_turns(entrants: Sequence[Entrant], effort: Effort) -> Rounds:
    """Start every client anew each round and warm it up, then measure them one after another."""
    taken: dict[str, list[Pair]] = {entrant.name: [] for entrant in entrants}
    for _ in range(effort.rounds):
        async with AsyncExitStack() as stack:
            round_ = [
                (entrant.name, await stack.enter_async_context(contender(entrant.name, entrant.command)))
                for entrant in entrants
            ]
            for entrant, (_, client) in zip(entrants, round_, strict=True):
                await client.load(in_flight=1, calls=effort.warm_calls * entrant.warmth)
            for _ in range(SLICES):
                singles = [await client.load(in_flight=1, calls=effort.single_calls // SLICES) for _, client in round_]
                parallels = [
                    await client.load(in_flight=IN_FLIGHT, calls=effort.parallel_calls // SLICES)
                    for _, client in round_
                ]
                for (name, _), single, parallel in zip(round_, singles, parallels, strict=True):
                    taken[name].append(Pair(single, parallel))
    return taken


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of each turn: both sides of a ratio met the same load."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))
