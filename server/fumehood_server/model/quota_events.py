"""What the journal records of quotas. See `model.quotas`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Event
from fumehood_server.model.quotas import Exceeded, shown


@dataclass(slots=True, kw_only=True)
class QuotaRefused(Event):
    """A call did not begin, or a model was not asked, since a quota had not as much left. That may come again."""

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
    """As it was asked for. It may be another call's. Empty: a run wanted to ask a model."""
    caller: str

    @classmethod
    def of(cls, exceeded: Exceeded, *, call_id: str, caller: str) -> QuotaRefused:
        """What is recorded of a refusal."""
        charge = exceeded.charge
        return cls(
            quota=charge.quota,
            counts=charge.counts.value,
            per=dict(charge.key),
            limit=shown(charge.limit),
            used=shown(exceeded.used),
            wanted=shown(charge.amount),
            free_us=exceeded.free_us,
            call_id=call_id,
            caller=caller,
        )
