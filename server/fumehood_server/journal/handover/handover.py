"""The thread that takes the newest checkpoint to every place, so that none of them holds up the journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from fumehood_server.journal.handover.place import Place

EVERY_S = 60.0
RETRY_S = 10.0
CLOSE_S = 5.0

OnState = Callable[[str, str | None], None]
"""Told in the thread that a place did not take a checkpoint, with the reason, or that it does again, with None."""


class Handover:
    """Gives each place the newest checkpoint: those that came while it was busy are in that one's tree."""

    def __init__(
        self, places: Sequence[Place], on_state: OnState, *, every_s: float = EVERY_S, retry_s: float = RETRY_S
    ) -> None:
        """Start the thread. `every_s` is the least time between two notes that a place is given; the last it gets."""
        self._places = tuple(places)
        self._on_state = on_state
        self._every_s = every_s
        self._retry_s = retry_s
        self._condition = threading.Condition()
        self._note: str | None = None
        self._cosigned: str | None = None
        self._given: dict[str, str] = {}
        """What each place took last."""
        self._failing: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal-handover", daemon=True)
        self._thread.start()

    def __call__(self, note: str) -> None:
        """Have a note handed over. Never blocks."""
        with self._condition:
            self._note = note
            self._condition.notify()

    def cosigned(self) -> str | None:
        """The newest note that came back with further signatures, once."""
        with self._condition:
            note, self._cosigned = self._cosigned, None
            return note

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Hand over what is left, for so long at most."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (note := self._next()) is not None:
            given = [self._give(place, note) for place in self._places]
            self._pause(note, given=all(given))

    def _next(self) -> str | None:
        with self._condition:
            self._condition.wait_for(lambda: self._note is not None or self._closing)
            note, self._note = self._note, None
            return note

    def _give(self, place: Place, note: str) -> bool:
        if self._given.get(place.name) == note:
            return True
        try:
            cosigned = place.take(note)
        except Exception as exc:  # noqa: BLE001 - a place that fails in a way of its own must not end the thread
            if place.name not in self._failing:
                self._failing.add(place.name)
                self._on_state(place.name, str(exc))
            return False
        self._given[place.name] = note
        if place.name in self._failing:
            self._failing.discard(place.name)
            self._on_state(place.name, None)
        if cosigned is not None:
            with self._condition:
                self._cosigned = cosigned
        return True

    def _pause(self, note: str, *, given: bool) -> None:
        """Wait for the next time; try a note again then that not every place took, unless a newer one has come."""
        with self._condition:
            self._condition.wait_for(lambda: self._closing, self._every_s if given else self._retry_s)
            if not given and self._note is None and not self._closing:
                self._note = note
