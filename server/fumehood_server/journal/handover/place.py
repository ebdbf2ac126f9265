"""What takes a checkpoint: the interface of every place."""

from __future__ import annotations

from typing import Protocol

from fumehood_server.errors import FumehoodError


class PlaceError(FumehoodError):
    """The place did not take it. The message says why."""


class Place(Protocol):
    """For one thread. May block for some seconds."""

    @property
    def name(self) -> str:
        """What an operator calls it."""

    def take(self, note: str) -> str | None:
        """Keep a signed note. Returns the note with the place's own signature, where it gives one.

        Raises:
            PlaceError: it is not kept.
        """
