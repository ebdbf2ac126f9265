"""Who is told of something when there is nobody to tell any more."""

from __future__ import annotations


def nobody(*_: object) -> None:
    """Do nothing.

    The parts of a worker hold each other, to tell each other things. Left so, they wait for the garbage collector: 80
    objects for each call in a process of its own. Each lets go of whom it tells when it has nothing more to tell.
    """
