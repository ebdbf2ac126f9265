"""Which whole events retention has removed, by the newest event that says so."""

from __future__ import annotations

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.store import Pruned, Reader
from fumehood_server.model.events import EventsPruned


def pruned_so_far(reader: Reader) -> Pruned:
    """What was removed until now.

    Raises:
        StoreError: the journal can't be read.
        ValueError: the event is none.
    """
    last = reader.last(EventsPruned.TYPE)
    return Pruned() if last is None else pruned_of(last.body)


def pruned_of(body: bytes) -> Pruned:
    """What such an event says.

    Raises:
        ValueError: it is none.
    """
    data = decode(body)["data"]
    try:
        return Pruned(int(data["up_to"]), int(data["until_us"]), int(data["removed"]))
    except (KeyError, TypeError) as exc:
        raise ValueError("is no event") from exc
