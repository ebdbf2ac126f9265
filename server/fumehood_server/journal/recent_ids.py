"""A blocked Bloom filter over the call ids of the last while: says without reading the journal that an id is new.

Almost every call's id is new, and looking it up would cost a commit and a read. The filter errs on one side alone: it
may take a new id for one that is there, which is then looked up.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable

WORDS = 1 << 18
"""Of 64 bits each: 2 MiB. Of a million ids, 1 in 200 new ones is looked up for nothing; of four million, 1 in 6."""
_WORD_BYTES = 8
_TURN_S = 60.0
"""The least time between two turns: each makes a filter anew, which takes as long as all else that an event costs."""


def words_of(call_ids: Iterable[str]) -> array[int]:
    """A filter of these ids. For any thread."""
    words = array("Q", bytes(WORDS * _WORD_BYTES))
    for call_id in call_ids:
        _add(words, call_id)
    return words


class RecentIds:
    """Two filters in turn, so that an id is known for at least the window and forgotten within twice that, or 2 min."""

    __slots__ = ("_clock", "_current", "_previous", "_since", "_turn_s")

    def __init__(self, window_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Until `load`, every id may be there."""
        self._turn_s = max(window_s, _TURN_S)
        self._clock = clock
        self._since = clock()
        self._current = words_of(())
        self._previous: array[int] | None = None

    def load(self, earlier: array[int]) -> None:
        """Take over the ids that were recorded within the window before this began, as `words_of` gives them."""
        self._previous = earlier

    def add(self, call_id: str) -> None:
        """The id is there from now on."""
        now = self._clock()
        if now - self._since >= self._turn_s:
            self._previous, self._current, self._since = self._current, words_of(()), now
        _add(self._current, call_id)

    def may_hold(self, call_id: str) -> bool:
        """Whether the id may have been recorded within the window. False: it was not."""
        previous = self._previous
        return previous is None or _holds(self._current, call_id) or _holds(previous, call_id)


def _add(words: array[int], call_id: str) -> None:
    place, mask = _place(call_id)
    words[place] |= mask


def _holds(words: array[int], call_id: str) -> bool:
    place, mask = _place(call_id)
    return words[place] & mask == mask


def _place(call_id: str) -> tuple[int, int]:
    """The word of an id, and four bits in it."""
    # Python's own hash of text: SipHash under a key of this process, so that nobody can choose ids that collide.
    number = hash(call_id)
    mask = 1 << (number & 63) | 1 << (number >> 6 & 63) | 1 << (number >> 12 & 63) | 1 << (number >> 18 & 63)
    return number >> 24 & WORDS - 1, mask
