"""What the journal records of quotas. See `model.quotas`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Event


@dataclass(slots=True, kw_only=True)
class QuotaRefused(Event):
    """A call did not begin, since a quota had not as much left. It is no event of a call: that may come again."""

    TYPE: ClassVar[str] = "quota_refused"
    quota: str
    counts: str
    """What it counts: see `Counted`."""
    per: Mapping[str, str]
    """What it is counted apart by."""
    limit: str
    """A decimal number, as the next two."""
    used: str
    wanted: str
    free_us: int | None
    """POSIX time in microseconds at which as much is free again. None: nobody knows, or never."""
    call_id: str
    """As it was asked for. It may be another call's."""
    caller: str
