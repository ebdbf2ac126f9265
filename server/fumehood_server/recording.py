"""Opens the journal that the configuration asks for, and records the sidecar's own start, configuration and end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version

from fumehood_server.checkpoint_handover import hand_over
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.config_file import JournalStore
from fumehood_server.config.effective import effective_document
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.off import NO_JOURNAL, NoJournal
from fumehood_server.journal.open import open_journal
from fumehood_server.journal.place import place_of
from fumehood_server.model.events import NOBODY, Document, SidecarStarted, SidecarStopped
from fumehood_server.model.operation_events import ConfigurationLoaded
from fumehood_server.model.text import printable
from fumehood_server.telemetry import get_logger


@dataclass(frozen=True, slots=True)
class Recording:
    """The journal, open, and the configuration as it names it."""

    journal: StoredJournal | NoJournal
    document: Document


@contextlib.asynccontextmanager
async def recording_of(config: SidecarConfig) -> AsyncIterator[Recording]:
    """The journal from the first event to the last."""
    document = await asyncio.to_thread(effective_document, config)
    async with _journal(config) as journal:
        journal.record(SidecarStarted(version=version("fumehood-server")))
        loaded = ConfigurationLoaded(
            configuration=document.digest.hex(),
            listen=tuple(printable(each.target) for each in config.server.listen),
            plugins=tuple(printable(each.path) for each in config.plugins),
        )
        journal.record(loaded, NOBODY, (), (document,))
        try:
            yield Recording(journal, document)
        finally:
            journal.record(SidecarStopped())


def _journal(config: SidecarConfig) -> StoredJournal | NoJournal:
    if config.journal.store is JournalStore.OFF:
        return NO_JOURNAL
    window_s, keep_events_d = config.journal.call_id_window_s, config.journal.keep_events_d
    return open_journal(
        place_of(config.server.state_dir, config.journal.database, window_s=window_s, keep_events_d=keep_events_d),
        config.server.state_dir,
        window_s=window_s,
        keep_payloads_d=config.journal.keep_payloads_d,
        keep_events_d=keep_events_d,
        on_state=_journal_state,
        on_recovered=_journal_recovered,
        hand_over=functools.partial(hand_over, config),
    )


def _journal_recovered(calls: int, interrupted: int) -> None:
    get_logger().warning(
        "calls_recovered", calls=calls, interrupted=interrupted, message="a sidecar ended before they did"
    )


def _journal_state(problem: str | None) -> None:
    if problem is None:
        get_logger().info("journal_available")
    else:
        get_logger().error("journal_unavailable", message=problem)
