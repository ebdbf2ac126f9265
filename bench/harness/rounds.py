"""Turn by turn: A B C A B C…, so that whatever else the machine does falls on all contenders alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness.contender import Contender
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


@dataclass(frozen=True, slots=True)
class Pair:
    """One contender in one round: alone, and with 32 in flight."""

    single: Load
    parallel: Load


Rounds = Mapping[str, Sequence[Pair]]


async def take_turns(contenders: Sequence[Contender], effort: Effort) -> Rounds:
    """Warm every contender up, then measure all of them once a round."""
    for each in contenders:
        await each.load(in_flight=1, calls=effort.warm_calls)
        await each.load(in_flight=IN_FLIGHT, calls=effort.warm_calls)
    taken: dict[str, list[Pair]] = {each.name: [] for each in contenders}
    for _ in range(effort.rounds):
        singles = [await each.load(in_flight=1, calls=effort.single_calls) for each in contenders]
        parallels = [await each.load(in_flight=IN_FLIGHT, calls=effort.parallel_calls) for each in contenders]
        for each, single, parallel in zip(contenders, singles, parallels, strict=True):
            taken[each.name].append(Pair(single, parallel))
    return taken


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of each round: both sides of a ratio met the same weather."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))
