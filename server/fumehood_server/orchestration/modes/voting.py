"""Counts votes of replicas (majority, unanimity, plurality), the same way whatever the order they came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fumehood_server.orchestration.request import Consensus


@dataclass(frozen=True, slots=True)
class Group:
    """Replicas that voted for the same."""

    replicas: tuple[int, ...]
    """Their numbers, the lowest first."""

    @property
    def votes(self) -> int:
        """How many they are."""
        return len(self.replicas)


def grouped(votes: Mapping[int, str]) -> tuple[Group, ...]:
    """Replicas by what they voted for: the most votes first, and among equals the lowest number."""
    found: dict[str, list[int]] = {}
    for replica in sorted(votes):
        found.setdefault(votes[replica], []).append(replica)
    groups = [Group(tuple(replicas)) for replicas in found.values()]
    return tuple(sorted(groups, key=lambda group: (-group.votes, group.replicas)))


def decide(groups: Sequence[Group], asked: int, consensus: Consensus) -> Group | None:
    """The group that has won among so many that were asked. None: none has.

    A replica that is lost has no vote, and is counted among those asked all the same.
    """
    if not groups:
        return None
    first = groups[0]
    match consensus:
        case Consensus.MAJORITY:
            return first if first.votes * 2 > asked else None
        case Consensus.UNANIMOUS:
            return first if first.votes == asked else None
        case Consensus.PLURALITY:
            return first
