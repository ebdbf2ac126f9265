"""Finds free times between meetings: a plugin with a package that the SDK doesn't bring, pinned in plugin.lock."""

from dataclasses import dataclass
from typing import Annotated

from fumehood_sdk import Field, Plugin
from sortedcontainers import SortedKeyList  # type: ignore[import-untyped]  # it ships no types

plugin = Plugin("slots", version="1.0.0")

Minute = Annotated[int, Field(ge=0, le=24 * 60)]


@dataclass
class Slot:
    """A part of a day, in minutes from midnight."""

    start: Minute
    end: Minute


@plugin.tool(side_effects="none", idempotent=True)
def find_free_slots(busy: list[Slot], minutes: Minute, opens: Minute = 9 * 60, closes: Minute = 17 * 60) -> list[Slot]:
    """Find the free times of a day that are long enough for a meeting, earliest first.

    Args:
        busy: When somebody is busy, in any order; times may overlap.
        minutes: How long the meeting takes.
        opens: When the day begins, in minutes from midnight.
        closes: When it ends.
    """
    free: list[Slot] = []
    since = opens
    for each in [*SortedKeyList(busy, key=lambda slot: slot.start), Slot(closes, closes)]:
        if min(each.start, closes) - since >= minutes:
            free.append(Slot(since, min(each.start, closes)))
        since = max(since, each.end)
    return free
