"""Opens the desk of approvals on the records that the journal keeps of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from fumehood_server.config.config import SidecarConfig
from fumehood_server.journal.approvals import ApprovalRecords
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.off import NoJournal
from fumehood_server.journal.standing_approvals import StandingRecords
from fumehood_server.model.bindings import Bindings
from fumehood_server.policy import ApprovalDesk, DeskSettings


@contextlib.asynccontextmanager
async def open_approvals(
    journal: StoredJournal | NoJournal, config: Callable[[], SidecarConfig], bindings: Bindings
) -> AsyncIterator[ApprovalDesk | None]:
    """The approvals that the journal keeps. None: it keeps none."""
    if not isinstance(journal, StoredJournal) or journal.reads is None:
        yield None
        return

    def settings() -> DeskSettings:
        found = config().approvals
        return DeskSettings(
            decide_within_s=found.decide_within_s,
            use_within_s=found.use_within_s,
            max_open=found.max_open,
            standing_max_s=found.standing_max_s,
        )

    records, standing = ApprovalRecords(journal, journal.reads), StandingRecords(journal, journal.reads)
    async with ApprovalDesk(records, standing, settings, bindings) as desk:
        yield desk
