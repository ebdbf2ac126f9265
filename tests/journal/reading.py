"""Reads a sidecar's journal while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import Verified, verify

BOUND_S = 60.0
Fields = dict[str, Any]


class Recorded:
    """The journal in the folder of a sidecar."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / ".fumehood"
        self.path = self.state / "journal.db"

    def events(self, kind: str) -> list[Fields]:
        with contextlib.closing(SqliteReader(self.path)) as reader:
            found = reader.events(EventFilter(types=frozenset({kind})), limit=100_000)
        return [decode(each.body) for each in found]

    def call(self, call_id: str) -> list[Fields]:
        with contextlib.closing(SqliteReader(self.path)) as reader:
            return [decode(each.body) for each in reader.events_of_call(call_id)]

    async def until(self, read: Callable[[], list[Fields]], count: int = 1) -> list[Fields]:
        """What `read` returns once there is so much: within 50 ms, where the machine has nothing else to do."""
        async with asyncio.timeout(BOUND_S):
            while len(found := read()) < count:  # noqa: ASYNC110 - nothing tells what another process has done
                await asyncio.sleep(0.01)
        return found

    async def call_until(self, call_id: str, kind: str) -> list[Fields]:
        """The events of a call, once one of a type is among them."""
        await self.until(lambda: [each for each in self.call(call_id) if each["type"] == kind])
        return self.call(call_id)

    async def signed(self) -> None:
        """Returns once a checkpoint covers every event that is there now: a second after the last of them."""
        async with asyncio.timeout(BOUND_S):
            with contextlib.closing(SqliteReader(self.path)) as reader:
                size = reader.size()
                while max((covered for covered, _ in reader.checkpoints()), default=0) < size:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    def verified(self) -> Verified:
        with contextlib.closing(SqliteReader(self.path)) as reader:
            return verify(reader, public_keys(self.state))


def data(events: list[Fields], kind: str) -> list[Fields]:
    """What events of one type say."""
    return [each["data"] for each in events if each["type"] == kind]
