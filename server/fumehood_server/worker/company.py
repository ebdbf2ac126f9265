"""How long a call's frame waits for the frames of others, so that one write wakes the process for all of them.

Where many call at once, requests come one by one through gRPC, and each frame that is written by itself wakes the
process for one call and the sidecar for one answer. Both then do everything once, with everything else in between, and
find nothing in their caches. A wait costs nothing then: the loop goes on, and each of its turns reads another request.

The wait is measured in turns of the loop, which are short where there is nothing to do. It grows to twice what it took
for the last one to come, and shrinks a little each time that this was less. With two callers, and soon after a crowd,
it is in vain most often: it is tried now and then, and given up after some frames.
"""

from __future__ import annotations

FEWEST_CALLS = 3
"""Calls under way at a time that make a crowd."""
REMEMBERED_FRAMES = 128
"""Frames after the last sight of a crowd for which there is thought to be one."""
TRIED_FRAMES = 32
"""Frames for which waiting is tried beside one other call: a crowd that isn't waited for can look like that."""
UNTRIED_FRAMES = 256
"""Frames sent beside one other call before it is tried again."""
FIRST_TURNS, FEWEST_TURNS, MOST_TURNS = 32, 4, 64
"""Of the wait: at first, and its bounds. A turn of an idle loop takes some 3 microseconds."""
MOST_FRAMES = 32
"""They go out without a further wait."""
LONGEST_WAIT_S = 0.001
"""Whatever the turns take: no caller of a quick tool waits for the parsing of somebody's megabytes."""


class Company:
    """One process's. A comparison or two for each frame."""

    __slots__ = ("_left", "_turns", "_untried")

    def __init__(self) -> None:
        """Nobody was seen yet."""
        self._left = 0
        """Frames for which there is thought to be a crowd."""
        self._turns = FIRST_TURNS
        self._untried = UNTRIED_FRAMES

    def turns(self, under_way: int) -> int:
        """How many turns of the loop a call's frame waits. `under_way` counts the call."""
        if under_way >= FEWEST_CALLS:
            self._left = REMEMBERED_FRAMES
        elif self._left:
            self._left -= 1
        elif under_way == 1:
            return 0
        elif self._untried < UNTRIED_FRAMES:
            self._untried += 1
            return 1
        else:
            self._untried = 0
            self._left = TRIED_FRAMES
            self._turns = FIRST_TURNS
        return self._turns

    def learn(self, last: int) -> None:
        """A wait is over. The last frame came after so many turns, 0 if in the first."""
        self._turns = min(max(2 * last, self._turns - self._turns // 16 - 1, FEWEST_TURNS), MOST_TURNS)
